import { type MaintenanceResult, type ReencodeOptions, SessionMaintenance } from '../../../../src/index.js';
import { NAME_CODEC, counted } from '../../../studio/src/operations/words.js';
import { Unfinished, UsageError } from '../errors.js';
import { Progress } from '../progress.js';
import type { Work } from '../run.js';
import { noteMore } from './remove.js';

export const reencode: Work<[ReencodeOptions]> = async ({ em, codec, terminal, signal }, options) => {
  if (!codec.codec) throw new UsageError(`reencode needs a codec. ${NAME_CODEC}`);
  const progress = new Progress(undefined);
  const onProgress = ({ done: { texts = 0 } }: MaintenanceResult) => progress.show(texts, counted(texts, 'text'));
  const result = await new SessionMaintenance(em, codec)
    .reencode({ ...options, signal, onProgress })
    .finally(() => progress.end());
  await terminal.result(result, () => [
    `${options.dryRun ? 'This would rewrite' : 'Rewrote'} ${counted(result.done.texts, 'text')}.`,
    ...(result.done.unreadable > 0
      ? [terminal.red(`Cannot be read: ${counted(result.done.unreadable, 'text')}.`)]
      : []),
  ]);
  if (result.skipped > 0)
    terminal.note(
      `Left: ${counted(result.skipped, 'text')} that somebody has written meanwhile; the same command again takes them up.`,
    );
  noteMore(terminal, result, signal);
  if (result.done.unreadable > 0) throw new Unfinished();
};
