import {
  SessionProjection,
  MikroOrmMemoryService,
  type MikroOrmMemoryServiceOptions,
  type MemoryProjectionOptions,
} from '../../../../src/index.js';
import { countProjected, Database } from '../../../../src/internal.js';
import { textSaidIn } from '../../../../src/conversation/said.js';
import { aPlainObject, condition, object } from '../../../../src/model/arguments.js';
import { withoutUndefined } from '../../../../src/model/json.js';
import { storedEncodings } from '../../../studio/src/internal.js';
import { NAME_CODEC, counted, quoted } from '../../../studio/src/operations/words.js';
import { Unfinished, UsageError } from '../errors.js';
import { defaultExportOf } from '../files.js';
import type { Context, Work } from '../run.js';

export const search: Work<[string, string, string, { sessionId?: string; since?: number; limit?: number }]> = async (
  { em, codec, terminal },
  ...[appName, userId, query, filter]
) => {
  const service = new MikroOrmMemoryService(em, codec);
  const maxCharacters = Number.MAX_SAFE_INTEGER;
  const { memories } = await service.searchMemory({ appName, userId, query, maxCharacters, ...filter });
  const rows = memories.map(({ score, timestamp, sessionId = '', id, content }) => [
    ...[
      { amount: score.toFixed(2) },
      { time: timestamp === undefined ? undefined : Date.parse(timestamp) },
      { id: sessionId },
      { id },
    ],
    shortened(textSaidIn(content)),
  ]);
  await terminal.result({ memories }, () => terminal.table([['score', 'time', 'session', 'id', 'text'], ...rows]));
  if (memories.length === 0) terminal.note('No memory has a word of this question.');
};

/** How many characters of a memory are shown in a line. */
const SHOWN = 100;

function shortened(text: string): string {
  const line = Array.from(text.replace(/\s+/g, ' '));
  return line.length > SHOWN ? `${line.slice(0, SHOWN - 1).join('')}…` : line.join('');
}

interface ForgetFlags {
  memoryId?: string;
  sessionId?: string;
  before?: number;
  all?: true;
  dryRun?: true;
}

export const forget: Work<[string, string | undefined, ForgetFlags]> = async (
  { em, codec, terminal, confirm },
  ...[appName, userId, { dryRun, ...what }]
) => {
  const { all, before } = what;
  const isRestricted = Object.keys(what).some((name) => name !== 'all');
  if (isRestricted === (all === true)) throw new UsageError('forget needs --id, --session or --before, or --all.');
  const service = new MikroOrmMemoryService(em, codec);
  const which = { appName, ...withoutUndefined({ userId }), ...what };
  // Fails without the codec, with which somebody may have taken an intact memory for a damaged one.
  await service.listMemories({ appName, ...withoutUndefined({ userId, sessionId: what.sessionId }), limit: 1 });
  const found = await service.forget({ ...which, dryRun: true });
  const whose = userId === undefined ? `the app ${quoted(appName)}` : quoted(userId);
  const amount = (memories: number) => `${counted(memories, 'memory', 'memories')} of ${whose}`;
  if (found === 0 && before === undefined) throw new Unfinished(`There is no such memory of ${whose}.`);
  if (dryRun) return terminal.result({ memories: found }, () => [`This would delete ${amount(found)}.`]);
  await confirm(`This deletes ${amount(found)}. Continue?`);
  const memories = await service.forget(which);
  await terminal.result({ memories }, () => [`Deleted ${amount(memories)}.`]);
};

interface RebuildFlags {
  options?: string;
  vectors?: true;
  dryRun?: true;
}

interface RebuildOptions {
  service?: MikroOrmMemoryServiceOptions;
  projection?: MemoryProjectionOptions;
}

/** The service and the projection check their own options. */
const checkOptions = object<RebuildOptions>({ service: condition(aPlainObject), projection: condition(aPlainObject) });

export const rebuild: Work<[RebuildFlags]> = async (context, { options: file, vectors, dryRun }) => {
  const { em, codec, terminal, signal, confirm } = context;
  const options = file === undefined ? {} : checkOptions(await defaultExportOf(file), `The default export of ${file}`);
  const { service = {}, projection: what = {} } = options;
  const memory = new MikroOrmMemoryService(em, { ...codec, ...service });
  if (vectors) return rebuildVectors(context, memory, dryRun);
  const projection = memory.projection(what);
  const { name = 'memory' } = what;
  const count = () => new Database(em).reader('rebuild')((sql) => countProjected(sql, what));
  if (!(await SessionProjection.list(em)).some((each) => each.name === name))
    throw new Unfinished(`There is no projection ${quoted(name)}.`);
  await refuseUnknown(em, codec);
  const forgotten = await count();
  const amount = counted(forgotten, 'memory', 'memories');
  if (dryRun) return terminal.result({ forgotten }, () => [`This would forget ${amount}, and read the log again.`]);
  const lost = 'What trimmed events said is not in the log any more.';
  await confirm(`This forgets ${amount}, and reads the log again. ${lost} Continue?`);
  await projection.rebuild();
  await projection.catchUp({ signal });
  const remembered = await count();
  await terminal.result({ forgotten, remembered }, () => [
    `Forgot ${amount}, and remembers ${counted(remembered, 'memory', 'memories')} now.`,
  ]);
  if (signal.aborted) throw new Unfinished('This is not all: the projection continues when it runs.');
};

/** Otherwise the memories would be deleted, and the log could not be read. @throws Unfinished if texts have another codec. */
async function refuseUnknown(em: Context['em'], codec: Context['codec']): Promise<void> {
  const found = await new Database(em, codec).reader('rebuild')(storedEncodings);
  const unknown = [...found].find(([, isKnown]) => !isKnown)?.[0];
  if (unknown !== undefined)
    throw new Unfinished(`Texts are encoded with ${unknown}. Nothing was deleted. ${NAME_CODEC}`);
}

async function rebuildVectors(
  { terminal, signal }: Context,
  memory: MikroOrmMemoryService,
  dryRun?: true,
): Promise<void> {
  const rebuilt = await memory.rebuildVectors({ signal, ...(dryRun && { dryRun }) });
  const amount = counted(rebuilt, 'memory', 'memories');
  await terminal.result({ vectors: rebuilt }, () => [
    dryRun ? `${amount} would get a vector.` : `${amount} got a vector.`,
  ]);
  if (signal.aborted) throw new Unfinished();
}
