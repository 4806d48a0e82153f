import { setTimeout } from 'node:timers/promises';
import { emptyHistory, type StormHistory, type StormJob } from '../../processes/storm-protocol.js';
import { randomOf } from '../../../support/random-numbers.js';
import { StormProcess } from '../storm.js';

type Driver = Pick<StormJob, 'name'>;

/** Processes on one file, which are killed at random moments and started again. */
export class Lives {
  readonly #bundle: string;
  readonly #url: string;
  readonly #driver: Driver;
  readonly #random = randomOf('lives');
  readonly #running = new Set<StormProcess>();
  /** The histories of processes that have ended. */
  readonly histories: StormHistory[] = [];
  kills = 0;

  /** @param bundle of `storm-process.ts`. */
  constructor(bundle: string, url: string, driver: Driver) {
    this.#bundle = bundle;
    this.#url = url;
    this.#driver = driver;
  }

  /** A process that appends. After the last kill it appends some events and ends by itself. */
  async ofWriter(writer: number, kills: number): Promise<void> {
    for (let life = 0; ; life++) {
      const label = `writer ${writer} life ${life}`;
      const isPatient = writer % 2 === 0;
      const process = this.#start({ kind: 'append', url: this.#url, label, count: 1e9, isPatient, ...this.#driver });
      await process.untilAcknowledged(1 + this.#random(11));
      if (life === kills) {
        process.endAfter(0);
        this.histories.push(await process.history);
        return;
      }
      this.histories.push(await this.#kill(process));
    }
  }

  /**
   * A process that reads the log, each time from the last entry that it reported. It is killed until `signal` aborts.
   *
   * @param count returns how many entries there are in the end.
   */
  async ofWatcher(signal: AbortSignal, count: () => Promise<number>): Promise<void> {
    const whole = emptyHistory();
    const add = ({ seen, unhandled }: StormHistory) => {
      whole.seen.push(...seen);
      whole.unhandled.push(...unhandled);
    };
    const start = () =>
      this.#start({ kind: 'watch', url: this.#url, after: whole.seen.at(-1)?.cursor ?? 0, ...this.#driver });
    while (!signal.aborted) {
      const process = start();
      await process.untilSeen(1 + this.#random(19), signal);
      add(await this.#kill(process));
    }
    const last = start();
    last.endAfter((await count()) - whole.seen.length);
    add(await last.history);
    this.histories.push(whole);
  }

  kill(): void {
    for (const process of this.#running) process.kill();
  }

  #start(job: StormJob): StormProcess {
    const process = new StormProcess(this.#bundle, job);
    this.#running.add(process);
    return process;
  }

  async #kill(process: StormProcess): Promise<StormHistory> {
    // A moment that depends on no acknowledgement.
    await setTimeout(this.#random(10));
    this.#running.delete(process);
    this.kills++;
    return process.killed();
  }
}
