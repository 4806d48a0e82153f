import {
  ValueTooLargeError,
  InvalidArgumentError,
  InvalidKeyError,
  AlreadyExistsError,
  UnserializableValueError,
  type SessionKey,
} from '../../../src/index.js';
import type { Import, ExportRecord } from '../../../src/internal.js';
import type { RefusedRow } from './options.js';

const REFUSALS = [
  ValueTooLargeError,
  InvalidArgumentError,
  InvalidKeyError,
  AlreadyExistsError,
  UnserializableValueError,
];

/** Writes the records of another store. A session that cannot be written is reported, and the import continues. */
export async function writeForeign(
  records: AsyncIterable<ExportRecord> | Iterable<ExportRecord>,
  target: Import,
  onRefused: (row: RefusedRow) => void,
  onRecord: () => boolean,
): Promise<void> {
  /** The session whose records follow; undefined if they are refused. */
  let session: SessionKey | undefined;
  const attempt = async (owner: Omit<RefusedRow, 'reason'>, work: Promise<void>) => {
    try {
      await work;
    } catch (error) {
      if (!(error instanceof Error && REFUSALS.some((refusal) => error instanceof refusal))) throw error;
      session = undefined;
      target.drop();
      onRefused({ ...owner, reason: error.message });
    }
  };
  for await (const record of records) {
    if (record.type !== 'event') {
      if (session) await attempt(session, target.end());
      const { appName, ...rest } = record;
      session = record.type === 'session' ? { appName, userId: record.userId, sessionId: record.sessionId } : undefined;
      await attempt(session ?? ('userId' in rest ? { appName, userId: rest.userId } : { appName }), target.add(record));
    } else if (session) {
      await attempt(session, target.add(record));
    }
    if (!onRecord()) return;
  }
  if (session) await attempt(session, target.end());
}
