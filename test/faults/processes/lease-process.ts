import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { ChildError } from './child.js';
import type { LeaseCommands } from './lease-worker.js';
import { WorkerBundle } from '../../support/worker-bundle.js';

export interface LeaseCall {
  call: number;
  command: keyof LeaseCommands;
  request: unknown;
}

export type LeaseAnswer =
  { call: number; result: unknown } | { call: number; error: { message: string; code?: string } };

export const leaseWorkerBundle = new WorkerBundle('test/faults/processes/lease-worker.ts');

/** Another process, which runs `lease-worker.ts`. */
export class LeaseProcess {
  readonly #process: ChildProcess;
  readonly #exit: Promise<unknown>;
  readonly #waiting = new Map<number, (answer: LeaseAnswer) => void>();
  #calls = 0;

  /** @param env this process's by default. */
  constructor(env = process.env) {
    this.#process = fork(leaseWorkerBundle.path, { execArgv: [], env });
    this.#exit = once(this.#process, 'exit');
    this.#process.on('message', (answer: LeaseAnswer) => this.#waiting.get(answer.call)?.(answer));
  }

  async call<Command extends keyof LeaseCommands>(
    command: Command,
    ...[request]: Parameters<LeaseCommands[Command]>
  ): Promise<Awaited<ReturnType<LeaseCommands[Command]>>> {
    const call = this.#calls++;
    const answered = new Promise<LeaseAnswer>((resolve) => this.#waiting.set(call, resolve));
    this.#process.send({ call, command, request } satisfies LeaseCall);
    const answer = await Promise.race([
      answered,
      this.#exit.then(() => Promise.reject(new Error('The process has ended'))),
    ]);
    if ('error' in answer) throw new ChildError(answer.error.message, answer.error.code);
    return answer.result as Awaited<ReturnType<LeaseCommands[Command]>>;
  }

  /** Wakes it after `stopThenAppend`. */
  continue(): void {
    this.#process.kill('SIGCONT');
  }

  /** Kills it, even if it is stopped, so that it cannot release anything. */
  async kill(): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.#exit;
  }
}
