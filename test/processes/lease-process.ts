import { fork, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { build } from 'esbuild';
import { ChildError } from './child.js';
import type { LeaseCommands } from './lease-worker.js';

export interface LeaseCall {
  call: number;
  command: keyof LeaseCommands;
  request: unknown;
}

export type LeaseAnswer =
  { call: number; result: unknown } | { call: number; error: { message: string; code?: string } };

const bundle = path.resolve(`node_modules/.cache/adk-mikro-orm/lease-worker-${randomBytes(5).toString('hex')}.mjs`);

/** As `buildWorker` does for `worker.ts`. */
export async function buildLeaseWorker(): Promise<void> {
  await build({
    entryPoints: [path.resolve('test/processes/lease-worker.ts')],
    outfile: bundle,
    bundle: true,
    platform: 'node',
    format: 'esm',
    external: ['@mikro-orm/*'],
    banner: { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" },
    logLevel: 'error',
  });
}

export async function removeLeaseWorker(): Promise<void> {
  await rm(bundle, { force: true });
}

/** Another process, which runs `lease-worker.ts`. */
export class LeaseProcess {
  readonly #process: ChildProcess = fork(bundle, { execArgv: [] });
  readonly #exit = once(this.#process, 'exit');
  readonly #waiting = new Map<number, (answer: LeaseAnswer) => void>();
  #calls = 0;

  constructor() {
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

  /** Without a chance to give anything back, also where it is stopped. */
  async kill(): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.#exit;
  }
}
