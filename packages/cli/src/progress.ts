import { SingleBar } from 'cli-progress';
import { now } from '../../../src/model/clock.js';

/** How often to write a line if stderr is not a terminal. */
const LINE_MS = 5_000;

/** Shows on stderr how far a command is: by a bar on a terminal, otherwise by a line every few seconds. */
export class Progress {
  readonly #total: number | undefined;
  readonly #bar: SingleBar | undefined;
  #lastLine = now();

  /** @param total undefined if it is not known: then the bar is a text. */
  constructor(total: number | undefined) {
    this.#total = total;

    if (!process.stderr.isTTY) return;
    const format = total === undefined ? '{text}' : '{bar} {percentage}%  {text}';
    this.#bar = new SingleBar({
      format,
      stream: process.stderr,
      barCompleteChar: '█',
      barIncompleteChar: '░',
      barsize: 24,
      hideCursor: true,
      clearOnComplete: true,
      stopOnComplete: false,
      // This shows the last state.
      forceRedraw: true,
    });
    this.#bar.start(total ?? 1, 0, { text: '' });
  }

  show(done: number, text: string): void {
    if (this.#bar) {
      this.#bar.update(Math.min(done, this.#total ?? 1), { text });
    } else if (now() - this.#lastLine >= LINE_MS) {
      this.#lastLine = now();
      const percent = this.#total ? `${Math.floor((100 * done) / this.#total)}%  ` : '';
      process.stderr.write(`${percent}${text}\n`);
    }
  }

  end(): void {
    this.#bar?.stop();
  }
}
