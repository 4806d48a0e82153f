import { SessionMaintenance } from '../../maintenance/session-maintenance.js';
import { given } from '../../model/objects.js';
import { Progress } from '../progress.js';
import type { Work } from '../run.js';
import { UsageError } from '../usage-error.js';
import { counted } from '../../operations/words.js';

interface ReencodeFlags {
  app?: string;
  user?: string;
  dryRun?: true;
  adoptPlain?: true;
  batchSize?: number;
  maxBatches?: number;
  pause?: number;
}

export const reencode: Work<[ReencodeFlags]> = async ({ em, codec, terminal, signal }, flags) => {
  if (!codec.codec) throw new UsageError('reencode needs --codec, a module with the codec of your services.');
  const { app: appName, user: userId, dryRun, adoptPlain, batchSize, maxBatches, pause: pauseMs } = flags;
  const progress = new Progress(undefined);
  const result = await new SessionMaintenance(em, codec)
    .reencode({
      ...given({ appName, userId }),
      ...{ dryRun, adoptPlain, batchSize, maxBatches, pauseMs, signal },
      onProgress: (done) => progress.show(done.texts, counted(done.texts, 'text')),
    })
    .finally(() => progress.end());
  await terminal.result(result, () => [
    `${dryRun ? 'This would rewrite' : 'Rewrote'} ${counted(result.texts, 'text')}.`,
    ...(result.unreadable > 0 ? [terminal.red(`Cannot be read: ${counted(result.unreadable, 'text')}.`)] : []),
  ]);
  if (result.skipped > 0)
    terminal.note(
      `Left: ${counted(result.skipped, 'text')} that somebody has written meanwhile; the same command again takes them up.`,
    );
  if (result.more) terminal.note('This is not all: run the same command again to continue.');
  // Asked for with --max-batches it is not a failure.
  return result.unreadable > 0 || (result.more && signal.aborted) ? 'failed' : undefined;
};
