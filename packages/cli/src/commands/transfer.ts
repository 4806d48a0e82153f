import { existsSync } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { importFrom, type ImportFromOptions, type SavedNames } from '../../../import/src/index.js';
import {
  SessionMaintenance,
  InvalidArgumentError,
  SessionNotFoundError,
  type SessionKey,
  type MaintenanceResult,
  adkServices,
} from '../../../../src/index.js';
import { decodeExactly } from '../../../import/src/exact-json.js';
import { withoutUndefined, isRecord } from '../../../../src/model/json.js';
import { counted, printable } from '../../../studio/src/operations/words.js';
import { connectForeign } from '../connect.js';
import { Unfinished, UsageError } from '../errors.js';
import { checkExists, inWords, openFile, writeFile } from '../files.js';
import { Progress } from '../progress.js';
import type { Context, Work } from '../run.js';
import { countOf, ownerOf } from './owner.js';

/** The export is written beside the file with this suffix until it is complete. */
const UNFINISHED = '.part';

interface ExportFlags extends Partial<SessionKey> {
  format?: 'session';
}

export const exportSessions: Work<[string | undefined, ExportFlags]> = async (context, file, flags) => {
  if (file !== undefined && file !== '-' && existsSync(file)) throw new UsageError(`The file ${file} exists.`);
  const { appName, userId, sessionId, format } = flags;
  if (format === undefined && sessionId === undefined) return exportRecords(context, file, flags);
  if (format === undefined || appName === undefined || userId === undefined || sessionId === undefined)
    throw new UsageError('--format session needs --app, --user and --session, and --session needs --format session.');
  return saveSession(context, file, { appName, userId, sessionId });
};

/** Writes one session as `adk run --save_session` does; `adk run --resume` reads it. */
async function saveSession({ em, codec, terminal }: Context, file: string | undefined, key: SessionKey): Promise<void> {
  const session = await adkServices(em, codec).sessionService.getSession(key);
  if (!session) throw new SessionNotFoundError(key.sessionId);
  await writeFile(file, Readable.from([`${JSON.stringify(session, undefined, 2)}\n`]));
  terminal.note(`Exported ${counted(session.events.length, 'event')}.`);
}

async function exportRecords(
  { em, codec, owned, terminal, signal }: Context,
  file: string | undefined,
  flags: ExportFlags,
): Promise<void> {
  const maintenance = new SessionMaintenance(em, { ...codec, ...(flags.userId !== undefined && { owned }) });
  const isFile = file !== undefined && file !== '-';
  const { done } = await countOf({ em }, flags);
  const progress = new Progress(done.sessions + done.events);
  let records = 0;
  async function* lines() {
    for await (const record of maintenance.exportSessions(ownerOf(flags))) {
      if (signal.aborted) return;
      yield `${JSON.stringify(record)}\n`;
      progress.show(++records, counted(records, 'record'));
    }
  }
  const unfinished = `${file}${UNFINISHED}`;
  const output = isFile ? (await openFile(unfinished, 'w')).createWriteStream() : process.stdout;
  const reader = lines();
  try {
    await pipeline(Readable.from(reader), output, { end: isFile });
  } catch (error) {
    if (isFile) await rm(unfinished, { force: true });
    throw isFile ? inWords(unfinished, 'written', error) : error;
  } finally {
    progress.end();
    // If writing the file fails, a query that is still under way would open the pool again after the ORM is closed.
    await reader.return();
  }
  if (isFile && !signal.aborted) await rename(unfinished, file);
  if (signal.aborted)
    throw new Unfinished(`Ended before the end. ${isFile ? `What was read is in ${unfinished}.` : ''}`.trim());
  terminal.note(`Exported ${counted(records, 'record')}.`);
}

interface ImportFlags
  extends
    Partial<SessionKey>,
    Pick<ImportFromOptions, 'keepAnnulled' | 'dryRun' | 'batchSize' | 'onExisting' | 'force'> {
  from?: string;
  keepState?: true;
}

export const importSessions: Work<[string | undefined, ImportFlags]> = async (context, file, flags) => {
  const { from } = flags;
  if ((file === undefined) === (from === undefined))
    throw new UsageError('import takes a file (- for the standard input), or --from with the URL of another store.');
  if (from === undefined) return importFile(context, file ?? '-', flags);
  if (namesOf(flags)) throw new UsageError('--app, --user and --session are for a file with saved sessions.');
  const source = await connectForeign(from);
  try {
    await importForeign(context, flags, { from: source.em });
  } finally {
    await source.close(true);
  }
};

/** The new names for saved sessions. */
function namesOf({ appName, userId, sessionId }: ImportFlags): SavedNames | undefined {
  const names = withoutUndefined({ appName, userId, sessionId });
  return Object.keys(names).length > 0 ? names : undefined;
}

async function importFile(context: Context, file: string, flags: ImportFlags): Promise<void> {
  const isFile = file !== '-';
  if (isFile) checkExists(file);
  const opened = isFile ? await openFile(file, 'r') : undefined;
  const input = opened?.createReadStream() ?? process.stdin;
  const progress = new Progress((await opened?.stat())?.size);
  let bytes = 0;
  const lines = linesIn(input, (length) => (bytes += length));
  try {
    const first = await firstLine(lines);
    if (!isRecordLine(first)) {
      let text = first;
      for (let next = await lines.next(); !next.done; next = await lines.next()) text += `\n${next.value}`;
      await importForeign(context, flags, { from: text, as: namesOf(flags) });
      return;
    }
    const { dryRun, keepAnnulled, batchSize, onExisting, force, keepState } = flags;
    if (dryRun || keepAnnulled || namesOf(flags))
      throw new UsageError('--dry-run, --keep-annulled, --app, --user and --session are not for a file of export.');
    const { em, codec, signal } = context;
    const result = await new SessionMaintenance(em, codec).importSessions(records(first, lines), {
      ...{ signal, batchSize, onExisting, force, sharedState: keepState && 'keep' },
      onProgress: ({ done }) => progress.show(bytes, written(done)),
    });
    progress.end();
    await report(context, result);
  } catch (error) {
    throw inWords(file, 'read', error);
  } finally {
    progress.end();
    input.destroy();
  }
}

const TO_UTF8 =
  'PowerShell writes UTF-16 with >: pipe the export into `Out-File -Encoding utf8` instead, or name a file for it.';

/** UTF-16 by its first byte, which no text in UTF-8 has. */
const WIDE: Readonly<Record<number, string>> = { 0xff: 'UTF-16LE', 0xfe: 'UTF-16BE' };

/**
 * Since Node.js 24 `readline` also ends lines at U+2028 and U+2029. Texts may contain these, and JSON does not escape them.
 *
 * @throws InvalidArgumentError for UTF-16.
 */
async function* linesIn(input: AsyncIterable<unknown>, onRead: (bytes: number) => void): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let line = '';
  let isBegun = false;
  for await (const chunk of input) {
    const bytes = chunk as Buffer;
    const wide = isBegun ? undefined : WIDE[bytes[0] ?? 0];
    if (wide !== undefined) throw new InvalidArgumentError(`${wide} cannot be imported, only UTF-8. ${TO_UTF8}`);
    isBegun = true;
    onRead(bytes.length);
    const [end = '', ...others] = decoder.decode(bytes, { stream: true }).split('\n');
    line += end;
    for (const next of others) {
      yield line;
      line = next;
    }
  }
  yield line + decoder.decode();
}

/** @returns the first line that is not empty. */
async function firstLine(lines: AsyncIterator<string>): Promise<string> {
  let next = await lines.next();
  while (!next.done && next.value.trim() === '') next = await lines.next();
  return next.done ? '' : next.value;
}

/** Whether a file with this first line comes from `export`. A saved session is one value, often in many lines. */
function isRecordLine(line: string): boolean {
  const record = decodeExactly(line)?.value;
  return line === '' || (isRecord(record) && Object.hasOwn(record, 'type'));
}

/** @throws InvalidArgumentError for a line that is not JSON. */
async function* records(first: string, lines: AsyncIterator<string>): AsyncGenerator {
  let next: IteratorResult<string, unknown> = { value: first };
  for (let number = 1; !next.done; number++) {
    if (next.value.trim() !== '') {
      // Our exports have no integer that JavaScript changes; if a file of another program has one, it is refused with its path.
      const record = decodeExactly(next.value);
      if (!record) throw new InvalidArgumentError(`Line ${number} is not JSON, so it is not a record of an export.`);
      yield record.value;
    }
    next = await lines.next();
  }
}

async function importForeign(
  context: Context,
  { dryRun, batchSize, onExisting, force, keepState, keepAnnulled }: ImportFlags,
  source: Pick<ImportFromOptions, 'from' | 'as'>,
): Promise<void> {
  const { em, codec, terminal, signal } = context;
  const progress = new Progress(undefined);
  const result = await importFrom({
    ...source,
    to: em,
    ...codec,
    ...{ signal, dryRun, batchSize, onExisting, force, keepAnnulled, sharedState: keepState && 'keep' },
    onProgress: ({ done }) => progress.show(done['records'] ?? 0, written(done)),
    onRefused: ({ reason, ...row }) =>
      terminal.note(printable(`not taken: ${Object.values(row).join(' / ')}: ${reason}`)),
  }).finally(() => progress.end());
  await report(context, result, dryRun);
}

async function report(
  { terminal, signal }: Context,
  result: Awaited<ReturnType<typeof importFrom>>,
  isDryRun?: boolean,
): Promise<void> {
  const { done, skipped } = result;
  const verb = isDryRun ? 'This would write' : 'Wrote';
  await terminal.result(result, () => [`${verb} ${written(done)}; read ${counted(done.records, 'record')}.`]);
  if (signal.aborted) terminal.note('Ended before the end: the same import again makes it whole.');
  if (skipped > 0)
    terminal.note(`Left as they are, since they are here: ${counted(skipped, 'session')} (see --on-existing).`);
  if (done.annulled > 0)
    terminal.note(
      `Left out, since they were rewound: ${counted(done.annulled, 'event')} (--keep-annulled takes them).`,
    );
  if (done.refused > 0) terminal.note(`Not taken: ${counted(done.refused, 'row')}.`);
  if (signal.aborted || done.refused > 0) throw new Unfinished();
}

const written = ({ sessions = 0, events = 0, artifactVersions = 0, memories = 0 }: MaintenanceResult['done']) =>
  [
    counted(sessions, 'session'),
    counted(events, 'event'),
    ...(artifactVersions > 0 ? [counted(artifactVersions, 'artifact version')] : []),
    ...(memories > 0 ? [counted(memories, 'memory', 'memories')] : []),
  ].join(', ');
