import { SessionProjection } from '../../log/session-projection.js';
import { MikroOrmMemoryService, type MikroOrmMemoryServiceOptions } from '../../memory/memory-service.js';
import { textOf } from '../../memory/memory-content.js';
import { countProjected, type MemoryProjectionOptions } from '../../memory/memory-projection.js';
import { aPlainObject, condition, object } from '../../model/arguments.js';
import { given } from '../../model/objects.js';
import { counted, quoted, shownTime } from '../../operations/words.js';
import { readerOf } from '../../operations/reader.js';
import { defaultExportOf } from '../default-export.js';
import type { CommandResult, Context, Work } from '../run.js';
import { UsageError } from '../usage-error.js';

interface SearchFlags {
  session?: string;
  since?: number;
  limit?: number;
}

export const search: Work<[string, string, string, SearchFlags]> = async (
  { em, codec, terminal },
  ...[appName, userId, query, { session: sessionId, since, limit }]
) => {
  const { memories } = await new MikroOrmMemoryService(em, codec).searchMemory({
    ...{ appName, userId, query },
    ...given({ sessionId, since, limit }),
  });
  const rows = memories.map(({ score, timestamp, sessionId = '', id, content }) => [
    ...[score.toFixed(2), timestamp === undefined ? '' : shownTime(Date.parse(timestamp)), sessionId, id],
    shortened(textOf(content)),
  ]);
  await terminal.result({ memories }, () => terminal.table([['score', 'time', 'session', 'id', 'text'], ...rows]));
  if (memories.length === 0) terminal.note('No memory has a word of this question.');
  return undefined;
};

/** How many characters of a memory are shown in a line. */
const SHOWN = 100;

function shortened(text: string): string {
  const line = Array.from(text.replace(/\s+/g, ' '));
  return line.length > SHOWN ? `${line.slice(0, SHOWN - 1).join('')}…` : line.join('');
}

interface ForgetFlags {
  id?: string;
  session?: string;
  before?: number;
  all?: true;
  dryRun?: true;
  yes?: true;
}

export const forget: Work<[string, string | undefined, ForgetFlags]> = async (
  { em, codec, terminal, signal },
  ...[appName, userId, { id: memoryId, session: sessionId, before, all, dryRun, yes }]
) => {
  const isRestricted = memoryId !== undefined || sessionId !== undefined || before !== undefined;
  if (isRestricted === (all === true)) throw new UsageError('forget needs --id, --session or --before, or --all.');
  const service = new MikroOrmMemoryService(em, codec);
  const which = { appName, ...given({ userId, memoryId, sessionId, before, all }) };
  const found = await service.forget({ ...which, dryRun: true });
  const whose = userId === undefined ? `the app ${quoted(appName)}` : quoted(userId);
  const amount = (memories: number) => `${counted(memories, 'memory', 'memories')} of ${whose}`;
  if (found === 0 && before === undefined) {
    terminal.note(`There is no such memory of ${whose}.`);
    return 'failed';
  }
  if (dryRun) {
    await terminal.result({ memories: found }, () => [`This would delete ${amount(found)}.`]);
    return undefined;
  }
  if (!yes && !(await terminal.confirm(`This deletes ${amount(found)}. Continue?`, signal))) {
    terminal.note('Nothing was deleted.');
    return 'failed';
  }
  const memories = await service.forget(which);
  await terminal.result({ memories }, () => [`Deleted ${amount(memories)}.`]);
  return undefined;
};

interface RebuildFlags {
  options?: string;
  vectors?: true;
  dryRun?: true;
  yes?: true;
}

interface RebuildOptions {
  service?: MikroOrmMemoryServiceOptions;
  projection?: MemoryProjectionOptions;
}

/** The service and the projection check their own options. */
const checkOptions = object<RebuildOptions>({ service: condition(aPlainObject), projection: condition(aPlainObject) });

export const rebuild: Work<[RebuildFlags]> = async (context, { options: file, vectors, dryRun, yes }) => {
  const { em, codec, terminal, signal } = context;
  const options = file === undefined ? {} : checkOptions(await defaultExportOf(file), `The default export of ${file}`);
  const { service = {}, projection: what = {} } = options;
  const memory = new MikroOrmMemoryService(em, { ...codec, ...service });
  if (vectors) return rebuildVectors(context, memory, dryRun);
  const projection = memory.projection(what);
  const { name = 'memory' } = what;
  const count = () => readerOf(em, 'rebuild').read((sql) => countProjected(sql, what));
  if (!(await SessionProjection.list(em)).some((each) => each.name === name)) {
    terminal.note(`There is no projection ${quoted(name)}.`);
    return 'failed';
  }
  const forgotten = await count();
  const amount = counted(forgotten, 'memory', 'memories');
  if (dryRun) {
    await terminal.result({ forgotten }, () => [`This would forget ${amount}, and read the log again.`]);
    return undefined;
  }
  const lost = 'What trimmed events said is not in the log any more.';
  if (!yes && !(await terminal.confirm(`This forgets ${amount}, and reads the log again. ${lost} Continue?`, signal))) {
    terminal.note('Nothing was deleted.');
    return 'failed';
  }
  await projection.rebuild();
  return refill(context, { forgotten, fill: () => projection.catchUp({ signal }), count });
};

async function rebuildVectors(
  { terminal, signal }: Context,
  memory: MikroOrmMemoryService,
  dryRun?: true,
): Promise<CommandResult> {
  const rebuilt = await memory.rebuildVectors({ signal, ...(dryRun && { dryRun }) });
  const amount = counted(rebuilt, 'memory', 'memories');
  await terminal.result({ vectors: rebuilt }, () => [
    dryRun ? `${amount} would get a vector.` : `${amount} got a vector.`,
  ]);
  return signal.aborted ? 'failed' : undefined;
}

async function refill(
  { terminal, signal }: Context,
  { forgotten, fill, count }: { forgotten: number; fill: () => Promise<void>; count: () => Promise<number> },
): Promise<CommandResult> {
  await fill();
  const remembered = await count();
  const [before, now] = [forgotten, remembered].map((memories) => counted(memories, 'memory', 'memories'));
  await terminal.result({ forgotten, remembered }, () => [`Forgot ${before}, and remembers ${now} now.`]);
  if (!signal.aborted) return undefined;
  terminal.note('This is not all: the projection continues when it runs.');
  return 'failed';
}
