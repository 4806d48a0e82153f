import { destroyerOf } from '../../database/orm/destroy.js';
import { clearTimeout, setTimeout } from '../../model/clock.js';
import { callHost } from '../../model/host-callbacks.js';
import type { NotificationClient } from '../../model/options.js';
import { pause } from '../../model/signals.js';

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 10_000;
/** How long a server may take to end a connection. */
const GRACE_MS = 1_000;

/**
 * Receives notifications of commits on a connection of its own. A notification only makes the next poll come sooner: if one is
 * lost, for example with its connection, no event is lost, and watchers see it with the next poll.
 */
export class LogListener {
  readonly #create: () => NotificationClient;
  readonly #channel: string;
  readonly #wake: () => void;
  readonly #report: (error: unknown) => void;
  #users = 0;
  #stop: AbortController | undefined;

  /** @param report gets the error when the connection is lost, or the first one fails. */
  constructor(create: () => NotificationClient, channel: string, wake: () => void, report: (error: unknown) => void) {
    this.#create = create;
    this.#channel = channel;
    this.#wake = wake;
    this.#report = report;
  }

  /** @returns a function that stops listening; the last one closes the connection. */
  start(): () => void {
    this.#users++;
    if (!this.#stop) {
      this.#stop = new AbortController();
      void this.#listen(this.#stop.signal);
    }
    return () => {
      if (--this.#users > 0) return;
      this.#stop?.abort();
      this.#stop = undefined;
    };
  }

  async #listen(signal: AbortSignal): Promise<void> {
    let isDown = false;
    for (let pauseMs = FIRST_PAUSE_MS; !signal.aborted; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
      const { wasConnected, error } = await this.#listenOnce(signal);
      if (wasConnected) pauseMs = FIRST_PAUSE_MS;
      // One report for each lost connection, not for each attempt to connect again.
      if (!signal.aborted && (wasConnected || !isDown)) this.#report(error);
      isDown = true;
      // Meanwhile watchers find events by polling.
      await pause(pauseMs, signal, { keepsAlive: false });
    }
  }

  /** @returns whether there was a connection, and what ended it. */
  async #listenOnce(signal: AbortSignal): Promise<{ wasConnected: boolean; error: unknown }> {
    let end = () => {};
    const ended = new Promise<void>((resolve) => (end = resolve));
    signal.addEventListener('abort', end);
    let client: NotificationClient | undefined;
    let wasConnected = false;
    let error: unknown;
    const connect = async (client: NotificationClient) => {
      await client.connect();
      await client.query(`listen ${this.#channel}`);
      wasConnected = true;
      // Events may have been committed before the connection began to listen.
      this.#wake();
    };
    try {
      client = this.#create();
      client.on('notification', () => this.#wake());
      client.on('error', (cause) => {
        error ??= cause;
        end();
      });
      client.on('end', end);
      // A server may accept the connection and never answer.
      await Promise.race([connect(client), ended]);
      await ended;
      error ??= new Error('The connection of the listener was closed.');
    } catch (cause) {
      // Retried after a pause.
      error ??= cause;
    } finally {
      signal.removeEventListener('abort', end);
    }
    if (client) endClient(client);
    return { wasConnected, error };
  }
}

/** Nobody waits for the end, which may never come. After `GRACE_MS` the connection is destroyed: it would keep the process alive. */
function endClient(client: NotificationClient): void {
  const late = setTimeout(() => void destroyerOf(client)?.(), GRACE_MS);
  callHost(async () => {
    await client.end();
    clearTimeout(late);
  });
}
