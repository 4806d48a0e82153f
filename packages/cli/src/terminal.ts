import { once } from 'node:events';
import { createInterface } from 'node:readline/promises';
import { UsageError } from './errors.js';
import { json } from '../../studio/src/operations/words.js';
import { tableLines, type Cell } from './table.js';

/** What a command prints: results to stdout, everything else to stderr. */
export class Terminal {
  readonly #isColored = process.stdout.isTTY && !process.env['NO_COLOR'];

  /**
   * @param isJson whether results are JSON, one value to a line.
   * @param isUtc whether tables have times in UTC.
   */
  constructor(
    readonly isJson: boolean,
    readonly isUtc = false,
  ) {}

  bold = (text: string) => this.#colored(1, text);
  dim = (text: string) => this.#colored(2, text);
  red = (text: string) => this.#colored(31, text);
  green = (text: string) => this.#colored(32, text);
  yellow = (text: string) => this.#colored(33, text);
  cyan = (text: string) => this.#colored(36, text);

  #colored(code: number, text: string): string {
    return this.#isColored ? `\x1b[${code}m${text}\x1b[0m` : text;
  }

  /** A result: the value with `--json`, otherwise the lines. The caller has made them printable. */
  result(value: unknown, lines: () => readonly string[]): Promise<void> {
    return this.write(this.isJson ? [json(value)] : lines());
  }

  /** Waits while the reader is behind. */
  async write(lines: readonly string[]): Promise<void> {
    const text = lines.map((line) => `${line}\n`).join('');
    if (!process.stdout.write(text)) await once(process.stdout, 'drain');
  }

  /** The lines of a table, with the first row as its heading. */
  table(rows: readonly (readonly Cell[])[]): string[] {
    const { isTTY, columns } = process.stdout;
    // A terminal that does not say how wide it is has 0 columns.
    const [heading = '', ...lines] = tableLines(rows, { width: (isTTY && columns) || undefined, isUtc: this.isUtc });
    return [this.dim(heading), ...lines];
  }

  /** Something other than a result. */
  note(text: string): void {
    process.stderr.write(`${text}\n`);
  }

  /**
   * @returns whether the answer is yes.
   * @throws UsageError if nobody can answer.
   */
  async confirm(question: string, signal: AbortSignal): Promise<boolean> {
    if (!process.stdin.isTTY) throw new UsageError(`${question} Nobody is there to answer; say --yes.`);
    const reader = createInterface({ input: process.stdin, output: process.stderr });
    try {
      return /^y(es)?$/i.test((await reader.question(`${question} [y/N] `, { signal })).trim());
    } catch (error) {
      if (signal.aborted) return false;
      throw error;
    } finally {
      reader.close();
    }
  }
}
