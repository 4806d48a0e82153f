import { existsSync } from 'node:fs';
import { rename } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { importFrom as importForeign } from '../../maintenance/import-from.js';
import { SessionMaintenance } from '../../maintenance/session-maintenance.js';
import { InvalidArgumentError } from '../../model/errors.js';
import { decodeExactly } from '../../model/exact-json.js';
import type { ImportResult } from '../../model/results.js';
import { connectForeign } from '../connect.js';
import { inWords, openFile } from '../files.js';
import { Progress } from '../progress.js';
import type { Context, CommandResult, Work } from '../run.js';
import { UsageError } from '../usage-error.js';
import { countOf, ownerOf, type OwnerFlags } from './owner.js';
import { counted, printable } from '../../operations/words.js';

/** Beside the file, until the export is whole. */
const UNFINISHED = '.part';

export const exportSessions: Work<[string | undefined, OwnerFlags & { asStored?: true }]> = async (
  { em, codec, terminal, signal },
  file,
  { asStored, ...flags },
) => {
  const maintenance = new SessionMaintenance(em, codec);
  const isFile = file !== undefined && file !== '-';
  if (isFile && existsSync(file)) throw new UsageError(`The file ${file} exists.`);
  const { sessions, events } = await countOf(em, flags);
  const progress = new Progress(sessions + events);
  let records = 0;
  async function* lines() {
    for await (const record of maintenance.exportSessions({ ...ownerOf(flags), texts: asStored && 'asStored' })) {
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
    throw isFile ? inWords(unfinished, 'written', error) : error;
  } finally {
    progress.end();
    // A query that is under way when the file fails would open the pool again after the ORM is closed.
    await reader.return();
  }
  if (isFile && !signal.aborted) await rename(unfinished, file);
  if (signal.aborted) {
    terminal.note(`Ended before the end. ${isFile ? `What was read is in ${unfinished}.` : ''}`.trim());
    return 'failed';
  }
  terminal.note(`Exported ${counted(records, 'record')}.`);
  return undefined;
};

interface ImportFlags {
  from?: string;
  dryRun?: true;
  asStored?: true;
  keepState?: true;
  batchSize?: number;
}

export const importSessions: Work<[string | undefined, ImportFlags]> = (context, file, flags) => {
  if ((file === undefined) === (flags.from === undefined))
    throw new UsageError('import takes a file (- for the standard input), or --from with the URL of another store.');
  if (flags.from !== undefined && flags.asStored) throw new UsageError('--as-stored is for a file.');
  if (flags.from !== undefined) return importFrom(context, flags.from, flags);
  if (flags.dryRun) throw new UsageError('--dry-run is for --from.');
  return importFile(context, file ?? '-', flags);
};

async function importFile(
  { em, codec, terminal, signal }: Context,
  file: string,
  { batchSize, asStored, keepState }: ImportFlags,
): Promise<CommandResult> {
  const isFile = file !== '-';
  if (isFile && !existsSync(file)) throw new UsageError(`There is no file ${file}.`);
  const opened = isFile ? await openFile(file, 'r') : undefined;
  const input = opened?.createReadStream() ?? process.stdin;
  const progress = new Progress((await opened?.stat())?.size);
  let bytes = 0;
  input.on('data', (chunk: string | Buffer) => (bytes += chunk.length));
  const show = (done: ImportResult) => progress.show(bytes, written(done));
  const options = {
    signal,
    batchSize,
    texts: asStored && ('asStored' as const),
    sharedState: keepState && ('keep' as const),
    onProgress: show,
  };
  try {
    const done = await new SessionMaintenance(em, codec).importSessions(records(input), options);
    progress.end();
    return await report({ terminal, signal }, done, done.records);
  } catch (error) {
    throw inWords(file, 'read', error);
  } finally {
    progress.end();
    input.destroy();
  }
}

/** @throws InvalidArgumentError for a line that is no JSON. */
async function* records(input: NodeJS.ReadableStream): AsyncGenerator {
  let number = 0;
  for await (const line of createInterface({ input, crlfDelay: Infinity })) {
    number++;
    if (line.trim() === '') continue;
    // No export of ours has an integer that JavaScript changes; one of another program is refused with its path.
    const record = decodeExactly(line);
    if (!record) throw new InvalidArgumentError(`Line ${number} is no JSON, so it is no record of an export.`);
    yield record.value;
  }
}

async function importFrom(
  { em, codec, terminal, signal }: Context,
  url: string,
  { dryRun, batchSize, keepState }: ImportFlags,
): Promise<CommandResult> {
  const source = await connectForeign(url);
  const progress = new Progress(undefined);
  try {
    const done = await importForeign({
      from: source.em,
      to: em,
      ...codec,
      signal,
      dryRun,
      batchSize,
      sharedState: keepState && ('keep' as const),
      onProgress: (done) => progress.show(done.records, written(done)),
      onRefused: ({ reason, ...row }) =>
        terminal.note(printable(`not taken: ${Object.values(row).join(' / ')}: ${reason}`)),
    });
    progress.end();
    const ended = await report({ terminal, signal }, done, done.records, dryRun);
    if (done.refused === 0) return ended;
    terminal.note(`Not taken: ${counted(done.refused, 'row')}.`);
    return 'failed';
  } finally {
    progress.end();
    await source.close(true);
  }
}

async function report(
  { terminal, signal }: Pick<Context, 'terminal' | 'signal'>,
  done: ImportResult,
  read: number,
  isDryRun?: boolean,
): Promise<CommandResult> {
  const verb = isDryRun ? 'This would write' : 'Wrote';
  await terminal.result(done, () => [`${verb} ${written(done)}; read ${counted(read, 'record')}.`]);
  if (!signal.aborted) return undefined;
  terminal.note('Ended before the end: the same import again makes it whole.');
  return 'failed';
}

const written = ({ sessions, events }: ImportResult) => `${counted(sessions, 'session')}, ${counted(events, 'event')}`;
