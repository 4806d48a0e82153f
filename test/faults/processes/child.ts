import { fork, type ChildProcess } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import type { DatabaseName } from '../../support/servers.js';
import type { Acknowledgement, Call, Message } from './protocol.js';
import type { Commands } from './worker.js';
import { WorkerBundle } from '../../support/worker-bundle.js';

let calls = 0;

export const workerBundle = new WorkerBundle('test/faults/processes/worker.ts');

/** The error of a call in the other process. */
export class ChildError extends Error {
  constructor(
    message: string,
    readonly code: string | undefined,
  ) {
    super(message);
  }
}

/** Another process, which runs `worker.ts`. */
export class Child {
  readonly acknowledged: Acknowledgement[] = [];
  readonly ready: Promise<void>;
  readonly #process: ChildProcess = fork(workerBundle.path, { execArgv: [] });
  /** Also waits for the end of the channel, by which everything that the process sent has been read. */
  readonly #exit = Promise.all([once(this.#process, 'exit'), once(this.#process, 'disconnect')]);
  readonly #events = new EventEmitter();

  constructor() {
    this.ready = this.#until('ready').then(() => undefined);
    this.#process.on('message', (message: Message) => {
      if ('ready' in message) this.#events.emit('ready');
      else if ('call' in message) this.#events.emit(`call ${message.call}`, message);
      else this.#events.emit('acknowledged', this.acknowledged.push(message.acknowledged));
    });
  }

  async call<Command extends keyof Commands>(
    command: Command,
    request: Parameters<Commands[Command]>[0],
  ): Promise<Awaited<ReturnType<Commands[Command]>>> {
    await this.ready;
    const call = calls++;
    const answered = this.#until(`call ${call}`);
    this.#process.send({ call, command, request } satisfies Call<Command>);
    const message = (await answered) as Extract<Message, { call: number }>;
    if ('error' in message) throw new ChildError(message.error.message, message.error.code);
    return ('result' in message ? message.result : undefined) as Awaited<ReturnType<Commands[Command]>>;
  }

  async untilAcknowledged(count: number, on: DatabaseName): Promise<void> {
    while (this.acknowledged.filter(({ name }) => name === on).length < count) await this.#until('acknowledged');
  }

  /** Kills it, so that it cannot finish anything. */
  async kill(): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.#exit;
  }

  async end(): Promise<void> {
    if (this.#process.connected) this.#process.disconnect();
    await this.#exit;
  }

  /** @throws Error if the process ends first. */
  async #until(event: string): Promise<unknown> {
    const stop = new AbortController();
    try {
      const [value] = await Promise.race([
        once(this.#events, event, stop),
        this.#exit.then(() => Promise.reject(new Error('The process has ended'))),
      ]);
      return value;
    } finally {
      stop.abort();
    }
  }
}
