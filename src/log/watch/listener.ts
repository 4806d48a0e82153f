import { destroyerOf } from '../../database/orm/destroy.js';
import { clearTimeout, setTimeout } from '../../model/clock.js';
import { callHost } from '../../model/host-callbacks.js';
import type { NotificationClient } from '../../model/options.js';
import { pause } from '../../model/signals.js';

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 10_000;
/** How long a server may take to end a connection. */
const GRACE_MS = 1_000;

/** A connection that receives notifications of commits. */
interface NotificationListener {
  create: () => NotificationClient;
  channel: string;
  wake: () => void;
  /** Gets the error when the connection is lost, or the first one fails. */
  report: (error: unknown) => void;
}

/**
 * Receives notifications of commits on a connection of its own. A notification only makes the next poll come sooner: if one is
 * lost, for example with its connection, no event is lost, and watchers see it with the next poll.
 *
 * @returns starts to listen, and returns a function that stops; the last one closes the connection.
 */
export function listenerOf(listening: NotificationListener): () => () => void {
  let users = 0;
  let stop: AbortController | undefined;
  return () => {
    users++;
    if (!stop) {
      stop = new AbortController();
      void listen(listening, stop.signal);
    }
    return () => {
      if (--users > 0) return;
      stop?.abort();
      stop = undefined;
    };
  };
}

async function listen(listening: NotificationListener, signal: AbortSignal): Promise<void> {
  let isDown = false;
  for (let pauseMs = FIRST_PAUSE_MS; !signal.aborted; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    const { wasConnected, error } = await listenOnce(listening, signal);
    if (wasConnected) pauseMs = FIRST_PAUSE_MS;
    // One report for each lost connection, not for each attempt to connect again.
    if (!signal.aborted && (wasConnected || !isDown)) listening.report(error);
    isDown = true;
    // Meanwhile watchers find events by polling.
    await pause(pauseMs, signal, { keepsAlive: false });
  }
}

/** @returns whether there was a connection, and what ended it. */
async function listenOnce(
  { create, channel, wake }: NotificationListener,
  signal: AbortSignal,
): Promise<{ wasConnected: boolean; error: unknown }> {
  let end = () => {};
  const ended = new Promise<void>((resolve) => (end = resolve));
  signal.addEventListener('abort', end);
  let client: NotificationClient | undefined;
  let wasConnected = false;
  let error: unknown;
  const connect = async (client: NotificationClient) => {
    await client.connect();
    await client.query(`listen ${channel}`);
    wasConnected = true;
    // Events may have been committed before the connection began to listen.
    wake();
  };
  try {
    client = create();
    client.on('notification', wake);
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

/** Nobody waits for the end, which may never come. After `GRACE_MS` the connection is destroyed: it would keep the process alive. */
function endClient(client: NotificationClient): void {
  const late = setTimeout(() => void destroyerOf(client)?.(), GRACE_MS);
  callHost(async () => {
    await client.end();
    clearTimeout(late);
  });
}
