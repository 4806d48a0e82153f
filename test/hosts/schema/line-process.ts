import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

/** A process that runs a script, and answers each line with a line. */
export class LineProcess {
  readonly #child: ChildProcess;
  readonly #exit: Promise<unknown>;
  readonly #lines: AsyncIterator<string, undefined>;

  /**
   * @param script a bundle, or the path of a TypeScript file in the repository.
   * @param node the program to run it with.
   * @param cwd the copy of the repository that has the script and the packages it uses.
   */
  constructor(script: string, { node = process.execPath, cwd = process.cwd() } = {}) {
    const loader = script.endsWith('.ts') ? ['--import', 'tsx'] : [];
    this.#child = spawn(node, [...loader, script], { cwd, stdio: ['pipe', 'pipe', 'inherit'] });
    this.#exit = once(this.#child, 'exit');
    this.#lines = createInterface({ input: this.#child.stdout! })[Symbol.asyncIterator]();
  }

  async ask(line: string): Promise<string> {
    this.#child.stdin!.write(`${line}\n`);
    const { value } = await this.#lines.next();
    return value ?? 'ended';
  }

  /** Kills it, so that it cannot finish anything. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#exit;
  }

  async end(): Promise<void> {
    this.#child.stdin!.end();
    await this.#exit;
  }
}
