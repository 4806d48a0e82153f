import { once } from 'node:events';
import { createInterface } from 'node:readline/promises';
import { UsageError } from './errors.js';
import { json, number, printable } from '../../studio/src/operations/words.js';

/** A cell of a table; numbers are aligned to the right. */
type Cell = string | number;

/** What a command prints: results to stdout, everything else to stderr. */
export class Terminal {
  readonly #isColored = process.stdout.isTTY && !process.env['NO_COLOR'];

  /** @param isJson whether results are JSON, one value to a line. */
  constructor(readonly isJson: boolean) {}

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

  /** The columns of a table, with the first row as its heading. */
  table([heading = [], ...rows]: readonly (readonly Cell[])[]): string[] {
    const text = (cell: Cell) => (typeof cell === 'number' ? number(cell) : printable(cell));
    const widths = heading.map((_, i) => Math.max(...[heading, ...rows].map((row) => text(row[i] ?? '').length)));
    const isNumber = heading.map((_, i) => rows.length > 0 && rows.every((row) => typeof row[i] === 'number'));
    const lineOf = (row: readonly Cell[]) =>
      row
        .map((cell, i) => (isNumber[i] ? text(cell).padStart(widths[i] ?? 0) : text(cell).padEnd(widths[i] ?? 0)))
        .join('  ')
        .trimEnd();
    return [this.dim(lineOf(heading)), ...rows.map(lineOf)];
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
