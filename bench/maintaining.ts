/** A process that runs maintenance on request, like the job of a scheduler. */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { SessionMaintenance, type PruneOptions, type TrimOptions } from '../src/index.js';
import type { TestDatabase } from '../test/support/servers.js';
import { connect } from './connect.js';

export type Job = { prune: PruneOptions } | { trim: TrimOptions };

type Answer = 'ready' | { sessions: number } | { error: string };

export class Maintainer {
  readonly #process: ChildProcess;

  private constructor(process: ChildProcess) {
    this.#process = process;
  }

  static async start({ name, url }: TestDatabase): Promise<Maintainer> {
    const maintainer = new Maintainer(fork(fileURLToPath(import.meta.url), ['maintain', name, url]));
    await maintainer.#answer();
    return maintainer;
  }

  /** @returns how many sessions were pruned or trimmed. */
  async do(job: Job): Promise<number> {
    this.#process.send(job);
    const answer = await this.#answer();
    if (answer === 'ready') throw new Error('The process has begun anew.');
    if ('error' in answer) throw new Error(answer.error);
    return answer.sessions;
  }

  async end(): Promise<void> {
    const ended = once(this.#process, 'exit');
    this.#process.disconnect();
    await ended;
  }

  async #answer(): Promise<Answer> {
    const ended = once(this.#process, 'exit').then(() => ({ error: 'The process that maintains has ended.' }));
    const [answer] = (await Promise.race([once(this.#process, 'message'), ended.then((error) => [error])])) as [Answer];
    return answer;
  }
}

async function maintain(name: string, url: string): Promise<void> {
  const orm = await connect(name, url);
  const maintenance = new SessionMaintenance(orm.em);
  const answer = (message: Answer) => process.send?.(message);
  process.on('message', (job: Job) => {
    const work = 'prune' in job ? maintenance.prune(job.prune) : maintenance.trim(job.trim);
    work.then(
      ({ done }) => answer({ sessions: done.sessions }),
      (error: unknown) => answer({ error: String(error) }),
    );
  });
  process.on('disconnect', () => void orm.close());
  answer('ready');
}

const [role, name = '', url = ''] = process.argv.slice(2);
if (role === 'maintain') await maintain(name, url);
