import { fork, type ChildProcess } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import type { LogCursor } from '../../../src/index.js';
import type { DatabaseName } from '../../support/servers.js';
import type { Job, Report, Seen } from './log-worker.js';
import { WorkerBundle } from '../../support/worker-bundle.js';

export const logWorkerBundle = new WorkerBundle('test/faults/processes/log-worker.ts');

/** Emits `news` when any of the processes reports something or ends. */
const changes = new EventEmitter();

/** Waits, as long as it takes, until reports make a condition true. @throws Error if `isSo` does. */
export async function untilReported(isSo: () => boolean): Promise<void> {
  while (!isSo()) await once(changes, 'news');
}

/** Another process, which runs `log-worker.ts`. */
export class LogProcess {
  readonly #process: ChildProcess = fork(logWorkerBundle.path, { execArgv: [] });
  readonly #exit = once(this.#process, 'exit');
  readonly #reports: Report[] = [];
  #hasEnded = false;

  constructor() {
    this.#process.on('exit', () => {
      this.#hasEnded = true;
      changes.emit('news');
    });
    this.#process.on('message', (report: Report) => {
      this.#reports.push(report);
      changes.emit('news');
    });
  }

  start(job: Job): void {
    this.#process.send(job);
  }

  /** A reader's reports on one database. @throws Error if it has ended without being killed. */
  seen(name: DatabaseName): Seen[] {
    return this.#of(name).flatMap((report) => ('seen' in report ? [report.seen] : []));
  }

  /** Where a reader of one database continues. */
  cursor(name: DatabaseName): LogCursor | number {
    return (
      this.#of(name)
        .flatMap((report) => ('seen' in report ? [report.cursor] : []))
        .at(-1) ?? 0
    );
  }

  /** The ids of the events that a writer committed; undefined until it is done. @throws Error if it never will be. */
  committed(name: DatabaseName): string[] | undefined {
    return this.#of(name).flatMap((report) => ('committed' in report ? [report.committed] : []))[0];
  }

  /** Kills it, so that it cannot finish anything, or report what it has done. */
  async kill(): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.#exit;
  }

  #of(name: DatabaseName): Report[] {
    const reports = this.#reports.filter((report) => report.name === name);
    const failed = reports.find((report) => 'error' in report);
    if (failed) throw new Error(`A process failed on ${name}: ${failed.error}`);
    if (this.#hasEnded && !this.#process.killed) throw new Error('A process has ended by itself');
    return reports;
  }
}
