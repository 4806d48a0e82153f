import { fork, type ChildProcess } from 'node:child_process';
import { EventEmitter, once } from 'node:events';

const PATIENCE_MS = 60_000;

export interface Started {
  process: ChildProcess;
  /** Its exit code, or the signal that ended it. */
  ended: Promise<[number | null, NodeJS.Signals | null]>;
}

/**
 * Starts copies of a program, and returns their messages on request, so that the output of several processes is printed in the
 * same order, whichever is faster.
 */
export class Processes<News extends { what: string }> {
  readonly #program: string;
  readonly #news: News[] = [];
  readonly #changes = new EventEmitter();

  constructor(program: string) {
    this.#program = program;
  }

  start(...args: string[]): Started {
    const child = fork(this.#program, args);
    const ended = once(child, 'exit') as Started['ended'];
    child.on('message', (news) => {
      this.#news.push(news as News);
      this.#changes.emit('news');
    });
    child.on('exit', (code) => {
      if (code !== 0 && !child.killed) this.#changes.emit('error', new Error(`Failed: ${args.join(' ')}`));
    });
    return { process: child, ended };
  }

  /** Waits for a message of a kind. */
  async next<What extends News['what']>(what: What): Promise<Extract<News, { what: What }>> {
    const isWanted = (news: News): news is Extract<News, { what: What }> => news.what === what;
    for (;;) {
      const found = this.#news.find(isWanted);
      if (found) {
        this.#news.splice(this.#news.indexOf(found), 1);
        return found;
      }
      await once(this.#changes, 'news', { signal: AbortSignal.timeout(PATIENCE_MS) });
    }
  }
}

/** Calls back when the process that started this one needs it no more, or has died. */
export function onceAbandoned(callback: () => void): void {
  process.once('disconnect', callback);
  // Listening must not keep the process alive.
  process.channel?.unref();
}
