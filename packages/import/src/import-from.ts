import type { EntityManager } from '@mikro-orm/core';
import { CallInParts, Database, Import, type ExportRecord } from '../../../src/internal.js';
import { aBoolean, aFunction, anything, keyConditions, object } from '../../../src/model/arguments.js';
import {
  InvalidArgumentError,
  type CommonOptions,
  type ErrorContext,
  type SessionMaintenance,
} from '../../../src/index.js';
import { callHost } from '../../../src/model/host-callbacks.js';
import { IMPORT_OPTIONS } from '../../../src/model/import-options.js';
import { COMMON_OPTIONS } from '../../../src/model/options.js';
import { ForeignStore } from './foreign-store.js';
import { writeForeign } from './import-foreign.js';
import { reasonOf, type Refuse } from './foreign-event.js';
import type { ImportFromOptions, RefusedRow, SavedNames } from './options.js';
import { ForeignReader } from './read-foreign.js';
import { recognise } from './recognise.js';
import { savedSessions } from './saved-session.js';

const checkOptions = object<ImportFromOptions>(
  {
    ...{ ...COMMON_OPTIONS, ...IMPORT_OPTIONS, from: anything, to: anything },
    as: object<SavedNames>(keyConditions),
    ...{ keepAnnulled: aBoolean, dryRun: aBoolean, onRefused: aFunction },
  },
  'from',
  'to',
);

/**
 * Copies the sessions of one of ADK's own stores (contract L2): `DatabaseSessionService` of `@google/adk` and of adk-python,
 * adk-python's `SqliteSessionService`, and adk-go's service. It is recognised by its tables, which are only read and may be in
 * use.
 *
 * ```ts
 * const { done, skipped } = await importFrom({ from: source.em, to: orm.em, dryRun: true });
 * ```
 *
 * Another call imports the sessions that are new since, and with `onExisting: 'replace'` also replaces those that have changed in
 * the store, if nobody has written to them here. Their titles, labels and artifacts stay. State of apps and users is overwritten
 * unless `sharedState` is `keep`. A session that was deleted here permanently is imported again.
 *
 * @returns what was written, or would be with `dryRun`, and how many sessions were left as they are.
 * @throws InvalidArgumentError if an option is unknown or its value is invalid.
 * @throws SchemaError if the tables are not those of a store (the message names them), or our tables are missing.
 * @throws DatabaseError, CodecError as the methods of `SessionMaintenance`.
 * @throws InsideTransactionError inside a transaction of one of the two.
 */
export async function importFrom(options: ImportFromOptions): ReturnType<SessionMaintenance['importSessions']> {
  options = checkOptions(options, 'The options of importFrom');
  const { from, to, signal, dryRun: isDryRun = false, onRefused, onProgress, as = {} } = options;
  if (options.as && typeof from !== 'string')
    throw new InvalidArgumentError('as is for the text of saved sessions; the rows of a store keep their names.');
  const context: ErrorContext = { operation: 'importFrom', key: {} };
  const database = new Database(to, options);
  const call = new CallInParts(database, context);
  const left = { refused: 0, annulled: 0 };
  let more = false;
  const onRefusedRow = (row: RefusedRow) => {
    left.refused++;
    callHost(onRefused, row);
  };
  const refuse: Refuse = (what, error) => onRefusedRow({ ...what, reason: reasonOf(error) });
  const onAnnulled = options.keepAnnulled ? undefined : (count: number) => (left.annulled += count);
  const records =
    typeof from === 'string'
      ? savedSessions(from, { as, refuse, onAnnulled })
      : await storedSessions(from, options, { refuse, onAnnulled });
  const target = new Import(call, { ...options, isDryRun, isOfOtherStore: true });
  const result = () => ({ ...target.result, done: { ...target.result.done, ...left }, more });
  return call.run(result, () =>
    writeForeign(records, target, onRefusedRow, () => {
      callHost(onProgress, result());
      more = signal?.aborted === true;
      return !more;
    }),
  );
}

/** The sessions in the tables of another store. */
async function storedSessions(
  from: EntityManager,
  options: CommonOptions,
  reading: ConstructorParameters<typeof ForeignReader>[3],
): Promise<AsyncIterable<ExportRecord>> {
  const foreign = new Database(from, { ...options, codec: undefined, isForeign: true });
  const { read } = new CallInParts(foreign, { operation: 'importFrom', key: {} });
  const store = new ForeignStore(foreign, (name) => from.getPlatform().quoteIdentifier(name));
  const kind = await read((sql) => recognise(sql, store, from));
  return new ForeignReader(read, store, kind, reading).records();
}
