import {
  type BatchOptions,
  type EraseUserOptions,
  type MaintenanceOptions,
  type PruneOptions,
  type TrimOptions,
  SessionMaintenance,
  UserNotErasedError,
  type MaintenanceResult,
} from '../../../../src/index.js';
import { counted, printable, quoted } from '../../../studio/src/operations/words.js';
import { Unfinished } from '../errors.js';
import { Progress } from '../progress.js';
import type { Context, Work } from '../run.js';

type Remove = (maintenance: SessionMaintenance, batches: BatchOptions) => Promise<MaintenanceResult>;

export const prune: Work<[PruneOptions]> = (context, options) =>
  remove(context, options, (maintenance, batches) => maintenance.prune({ ...options, ...batches }));

export const trim: Work<[TrimOptions]> = (context, options) =>
  remove(context, options, (maintenance, batches) => maintenance.trim({ ...options, ...batches }));

export const eraseUser: Work<[string, Omit<EraseUserOptions, 'userId'>]> = async (context, userId, options) => {
  let isKnown = false;
  const work: Remove = async (maintenance, batches) => {
    const result = await maintenance.eraseUser({ ...options, userId, ...batches });
    isKnown ||= Object.values(result.done).some((number) => number > 0);
    return result;
  };
  await remove(context, options, work, { owned: context.owned });
  if (!isKnown) throw new Unfinished(`There is no user ${quoted(userId)}.`);
};

/** Counts, asks and deletes. */
async function remove(
  { em, codec, services, terminal, signal, confirm }: Context,
  { dryRun }: BatchOptions,
  work: Remove,
  more: MaintenanceOptions = {},
): Promise<void> {
  const maintenance = new SessionMaintenance(em, { ...codec, ...services, ...more });
  const planned = await work(maintenance, { signal, dryRun: true });
  if (dryRun) {
    await terminal.result(planned, () => [`This would delete ${amount(planned)}.`, ...referring(planned)]);
    noteKept(terminal, planned);
    return;
  }
  // Run it all the same: it also removes what earlier processes have left for their retries.
  if (Object.values(planned.done).some((count) => count > 0))
    await confirm([`This deletes ${amount(planned)}.`, ...referring(planned), 'Continue?'].join(' '));
  const progress = new Progress(rowsOf(planned));
  let left: UserNotErasedError | undefined;
  const onProgress = (so: MaintenanceResult) => progress.show(rowsOf(so), amount(so));
  const removed = work(maintenance, { signal, onProgress }).finally(() => progress.end());
  const result = await removed.catch((error: unknown) => {
    if (!(error instanceof UserNotErasedError)) throw error;
    left = error;
    return error.result;
  });
  await terminal.result(result, () => [`Deleted ${amount(result)}.`, ...referring(result)]);
  noteKept(terminal, result);
  if (left) throw new Unfinished(left.message);
  if (result.skipped > 0)
    terminal.note(
      `Left: ${counted(result.skipped, 'session')}. Somebody is at work in them, or a foreign key keeps them; the same command again takes them up.`,
    );
  noteMore(terminal, result, signal);
}

/** @throws Unfinished if there is more, unless that was asked for with --max-batches. */
export function noteMore(terminal: Context['terminal'], { more }: MaintenanceResult, signal: AbortSignal): void {
  if (!more) return;
  const text = 'This is not all: run the same command again to continue.';
  if (signal.aborted) throw new Unfinished(text);
  terminal.note(text);
}

/** How many kept sessions are named. */
const NAMED = 10;

function noteKept(terminal: Context['terminal'], { kept = [] }: MaintenanceResult): void {
  for (const { appName, userId, sessionId, table, constraint } of kept.slice(0, NAMED))
    terminal.note(printable(`Kept by ${table} (${constraint}): ${[appName, userId, sessionId].join(' / ')}`));
}

/** What happens to rows of the host's tables. */
const referring = ({ referring = [] }: MaintenanceResult): string[] =>
  referring.map(({ table, constraint, rule, rows }) =>
    printable(
      `${rows === undefined ? 'Rows that this account may not read' : counted(rows, 'row')} of ${table}: ${HAPPENS[rule]} (${constraint}, on delete ${rule}).`,
    ),
  );

const HAPPENS: Readonly<Record<NonNullable<MaintenanceResult['referring']>[number]['rule'], string>> = {
  cascade: 'deleted, too',
  'set null': 'changed',
  'set default': 'changed',
  restrict: 'each keeps its session',
  'no action': 'each keeps its session',
};

const rowsOf = ({ done: { sessions = 0, events = 0 } }: MaintenanceResult) => sessions + events;

/** The words for kinds whose names do not say enough. */
const WORDS: Readonly<Record<string, readonly [string, string?]>> = {
  stateKeys: ['key of the user’s state', 'keys of the user’s state'],
  artifacts: ['artifact'],
  memories: ['memory', 'memories'],
  credentials: ['credential'],
};

function amount({ done: { sessions = 0, events = 0, ...others } }: MaintenanceResult): string {
  const more = Object.entries(others)
    .filter(([, number]) => number > 0)
    .map(([kind, number]) => counted(number, ...(WORDS[kind] ?? [kind, kind])));
  return [`${counted(events, 'event')} in ${counted(sessions, 'session')}`, ...more].join(' and ');
}
