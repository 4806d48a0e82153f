import type { BatchOptions, PruneOptions, TrimOptions } from '../../maintenance/options.js';
import { SessionMaintenance } from '../../maintenance/session-maintenance.js';
import { UserNotErasedError } from '../../model/errors.js';
import { given } from '../../model/objects.js';
import type { MaintenanceResult } from '../../model/results.js';
import { Progress } from '../progress.js';
import type { Context, CommandResult, Work } from '../run.js';
import { counted, quoted } from '../../operations/words.js';
import { ownerOf, type OwnerFlags } from './owner.js';

/** The options of the commands that delete in batches. */
interface BatchFlags {
  yes?: true;
  dryRun?: true;
  batchSize?: number;
  maxBatches?: number;
  pause?: number;
  includeLeased?: true;
}

type Remove = (maintenance: SessionMaintenance, options: BatchOptions) => Promise<MaintenanceResult>;

export const prune: Work<[BatchFlags & OwnerFlags & Pick<PruneOptions, 'idleFor' | 'olderThan' | 'deletedFor'>]> = (
  context,
  flags,
) => {
  const { app: appName, user: userId, idleFor, olderThan, deletedFor } = flags;
  const what = given({ appName, userId, idleFor, olderThan, deletedFor });
  return remove(context, flags, (maintenance, options) => maintenance.prune({ ...what, ...options }));
};

export const trim: Work<
  [BatchFlags & OwnerFlags & { session?: string } & Pick<TrimOptions, 'keepLast' | 'olderThan' | 'dropOpenCalls'>]
> = (context, flags) => {
  const { app: appName, user: userId, session: sessionId, keepLast, olderThan, dropOpenCalls } = flags;
  const what = given({ appName, userId, sessionId, keepLast, olderThan, dropOpenCalls });
  return remove(context, flags, (maintenance, options) => maintenance.trim({ ...what, ...options }));
};

export const eraseUser: Work<[string, BatchFlags & Pick<OwnerFlags, 'app'>]> = async (context, userId, flags) => {
  let isKnown = false;
  const ended = await remove(context, flags, async (maintenance, options) => {
    const done = await maintenance.eraseUser({ ...ownerOf(flags), userId, ...options });
    isKnown ||= done.sessions + done.stateKeys + done.artifacts + done.memories + done.credentials > 0;
    return done;
  });
  if (isKnown) return ended;
  context.terminal.note(`There is no user ${quoted(userId)}.`);
  return 'failed';
};

/** Counts, asks and deletes. */
async function remove(
  { em, codec, terminal, signal }: Context,
  flags: BatchFlags,
  work: Remove,
): Promise<CommandResult> {
  const maintenance = new SessionMaintenance(em, codec);
  const { batchSize, maxBatches, includeLeased } = flags;
  const base: BatchOptions = { signal, batchSize, maxBatches, includeLeased };
  const planned = await work(maintenance, { ...base, dryRun: true });
  if (flags.dryRun) {
    await terminal.result(planned, () => [`This would delete ${amount(planned)}.`]);
    return undefined;
  }
  const question = `This deletes ${amount(planned)}. Continue?`;
  if (!flags.yes && !(await terminal.confirm(question, signal))) {
    terminal.note('Nothing was deleted.');
    return 'failed';
  }
  const progress = new Progress(planned.sessions + planned.events);
  let left: UserNotErasedError | undefined;
  const removed = work(maintenance, {
    ...base,
    pauseMs: flags.pause,
    onProgress: (done) => progress.show(done.sessions + done.events, amount(done)),
  }).finally(() => progress.end());
  const result = await removed.catch((error: unknown) => {
    if (!(error instanceof UserNotErasedError)) throw error;
    left = error;
    return error.done;
  });
  await terminal.result(result, () => [`Deleted ${amount(result)}.`]);
  if (left) {
    terminal.note(left.message);
    return 'failed';
  }
  if (result.skipped > 0)
    terminal.note(
      `Left: ${counted(result.skipped, 'session')}. Somebody is at work in them; the same command again takes them up.`,
    );
  if (!result.more) return undefined;
  terminal.note('This is not all: run the same command again to continue.');
  // Asked for with --max-batches it is not a failure.
  return signal.aborted ? 'failed' : undefined;
}

function amount(done: MaintenanceResult): string {
  const more = [
    done.stateKeys && `${counted(done.stateKeys, 'key')} of the user’s state`,
    done.artifacts && counted(done.artifacts, 'artifact'),
    done.uploads && `${counted(done.uploads, 'stream')} not saved to the end`,
    done.memories && counted(done.memories, 'memory', 'memories'),
    done.credentials && counted(done.credentials, 'credential'),
  ].filter(Boolean);
  return [`${counted(done.events, 'event')} in ${counted(done.sessions, 'session')}`, ...more].join(' and ');
}
