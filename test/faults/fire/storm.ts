import { fork, type ChildProcess } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { emptyHistory, type StormHistory, type StormJob, type StormReport } from '../processes/storm-protocol.js';

/** A process that appends or watches while its connections end. */
export class StormProcess {
  readonly #child: ChildProcess;
  readonly #reports = new EventEmitter();
  /** Resolves when everything that it reported has arrived. */
  readonly #closed: Promise<unknown>;
  readonly #soFar = emptyHistory();
  /** The id of the current append. */
  #tried: string | undefined;
  /** @throws Error if the process has died. */
  readonly history: Promise<StormHistory>;

  /**
   * @param bundle of `storm-process.ts`.
   * @param env this process's by default.
   */
  constructor(bundle: string, job: StormJob, env = process.env) {
    const stdio = ['ignore', 'ignore', 'inherit', 'ipc'] as const;
    this.#child = fork(bundle, [JSON.stringify(job)], { execArgv: [], stdio: [...stdio], env });
    this.#closed = once(this.#child, 'close');
    this.#child.on('message', (report: StormReport) => {
      this.#note(report);
      this.#reports.emit('told');
    });
    this.history = this.#untilDone();
    // Awaited later, after those of others.
    this.history.catch(() => undefined);
  }

  /** Ends after this many entries or appends. */
  endAfter(count: number): void {
    this.#child.send(count);
  }

  /** Waits until this many more of its appends are acknowledged. */
  async untilAcknowledged(more: number): Promise<void> {
    const { acknowledged } = this.#soFar;
    await this.#until(() => acknowledged.length, more);
  }

  /** Waits until this many more of its appends have failed. */
  async untilFailed(more: number): Promise<void> {
    await this.#until(() => this.#soFar.failed.length, more);
  }

  /**
   * Waits until it has seen this many more entries of the log.
   *
   * @param signal ends the wait.
   */
  async untilSeen(more: number, signal?: AbortSignal): Promise<void> {
    await this.#until(() => this.#soFar.seen.length, more, signal);
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }

  /** Kills it, so that it cannot finish anything. @returns the answers that it has got. */
  async killed(): Promise<StormHistory> {
    this.kill();
    await this.#closed;
    return { ...this.#soFar, interrupted: this.#tried === undefined ? [] : [this.#tried] };
  }

  async #until(count: () => number, more: number, signal?: AbortSignal): Promise<void> {
    const enough = count() + more;
    const wake = () => this.#reports.emit('told');
    signal?.addEventListener('abort', wake);
    const ended = this.history.then(() => Promise.reject(new Error('The process has ended')));
    ended.catch(() => undefined);
    while (count() < enough && !signal?.aborted) await Promise.race([once(this.#reports, 'told'), ended]);
    signal?.removeEventListener('abort', wake);
  }

  async #untilDone(): Promise<StormHistory> {
    const [error] = (await Promise.race([
      once(this.#reports, 'end'),
      this.#closed.then(() => ['The process has died']),
    ])) as [string | undefined];
    this.kill();
    if (error !== undefined) throw new Error(error);
    return this.#soFar;
  }

  #note(report: StormReport): void {
    const { acknowledged, failed, reads, handle, seen, unhandled } = this.#soFar;
    switch (report.kind) {
      case 'tries':
        this.#tried = report.id;
        break;
      case 'acknowledged':
        acknowledged.push(report.id);
        this.#tried = undefined;
        break;
      case 'failed':
        failed.push({ id: report.id, outcome: report.outcome, code: report.code });
        this.#tried = undefined;
        break;
      case 'read':
        reads.push(report.ids);
        break;
      case 'handle':
        handle.push(...report.ids);
        break;
      case 'seen':
        seen.push({ id: report.id, position: report.position, cursor: report.cursor });
        break;
      case 'unhandled':
        unhandled.push(report.error);
        break;
      case 'done':
        this.#reports.emit('end');
        break;
      case 'error':
        this.#reports.emit('end', report.error);
    }
  }
}
