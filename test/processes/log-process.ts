import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { DatabaseName } from '../support/servers.js';
import type { Job, Report, Seen } from './log-worker.js';
import { WorkerBundle } from './worker-bundle.js';

export const logWorkerBundle = new WorkerBundle('log-worker.ts');

/** Another process, which runs `log-worker.ts`. */
export class LogProcess {
  readonly #process: ChildProcess = fork(logWorkerBundle.path, { execArgv: [] });
  readonly #exit = once(this.#process, 'exit');
  readonly #reports: Report[] = [];
  #hasEnded = false;

  constructor() {
    this.#process.on('exit', () => (this.#hasEnded = true));
    this.#process.on('message', (report: Report) => this.#reports.push(report));
  }

  start(job: Job): void {
    this.#process.send(job);
  }

  /** What a reader has reported, of one database. @throws Error when the process has. */
  seen(name: DatabaseName): Seen[] {
    return this.#of(name).flatMap((report) => ('seen' in report ? [report.seen] : []));
  }

  /** The ids of the events that a writer has committed; undefined until it is done. @throws Error when it never will be. */
  committed(name: DatabaseName): string[] | undefined {
    const [committed] = this.#of(name).flatMap((report) => ('committed' in report ? [report.committed] : []));
    if (!committed && this.#hasEnded) throw new Error('The process has ended');
    return committed;
  }

  /** Without a chance to finish anything, or to say what it has done. */
  async kill(): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.#exit;
  }

  #of(name: DatabaseName): Report[] {
    const reports = this.#reports.filter((report) => report.name === name);
    const failed = reports.find((report) => 'error' in report);
    if (failed) throw new Error(`A process failed on ${name}: ${failed.error}`);
    return reports;
  }
}
