import { type ReencodeOptions, SessionMaintenance } from '../../../../src/index.js';
import { NAME_CODEC, counted } from '../../../studio/src/operations/words.js';
import { Unfinished, UsageError } from '../errors.js';
import { Progress } from '../progress.js';
import type { Work } from '../run.js';
import { noteMore } from './remove.js';

export const reencode: Work<[ReencodeOptions]> = async ({ em, codec, terminal, signal }, options) => {
  if (!codec.codec) throw new UsageError(`reencode needs a codec. ${NAME_CODEC}`);
  const progress = new Progress(undefined);
  const result = await new SessionMaintenance(em, codec)
    .reencode({ ...options, signal, onProgress: (done) => progress.show(done.texts, counted(done.texts, 'text')) })
    .finally(() => progress.end());
  await terminal.result(result, () => [
    `${options.dryRun ? 'This would rewrite' : 'Rewrote'} ${counted(result.texts, 'text')}.`,
    ...(result.unreadable > 0 ? [terminal.red(`Cannot be read: ${counted(result.unreadable, 'text')}.`)] : []),
  ]);
  if (result.skipped > 0)
    terminal.note(
      `Left: ${counted(result.skipped, 'text')} that somebody has written meanwhile; the same command again takes them up.`,
    );
  noteMore(terminal, result, signal);
  if (result.unreadable > 0) throw new Unfinished();
};
