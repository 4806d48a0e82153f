import type { EventLog, SessionKey } from 'adk-mikro-orm';
import { createEventStreamHandler } from 'adk-mikro-orm-http';

/** Fires when the process must end: streams end, and browsers reconnect to another process. */
export const stopping = new AbortController();
process.once('SIGTERM', () => stopping.abort());

/**
 * Sends the events of a session as server-sent events, for `/sessions/:id/events`; docs/recipes.md says what a page does with each type.
 *
 * @param keyOf says whose session it is.
 */
export function eventStream(log: EventLog, keyOf: (sessionId: string) => SessionKey) {
  return createEventStreamHandler(log, {
    authorize: ({ url }) => keyOf(decodeURIComponent(new URL(url).pathname.split('/')[2] ?? '')),
    onError: (error) => console.error(error),
    signal: stopping.signal,
  });
}
