import {
  InvalidArgumentError,
  LogWentBackError,
  type EventLog,
  type SessionKey,
  type SessionLogCursor,
} from 'adk-mikro-orm';
import { setTimeout } from 'node:timers/promises';

const HEARTBEAT_MS = 15_000;

/** Fires when the process must end: streams end, and browsers reconnect to another process. */
export const stopping = new AbortController();
process.once('SIGTERM', () => stopping.abort());

/**
 * The events of a session as server-sent events; docs/recipes.md says what a page does with each type.
 *
 * @param lastEventId the header `Last-Event-ID`, which a browser sends when it connects again: a cursor of the log.
 */
export function eventStream(log: EventLog, key: SessionKey, lastEventId = '0'): Response {
  const closed = new AbortController();
  const signal = AbortSignal.any([closed.signal, stopping.signal]);
  const entriesAfter = (cursor: SessionLogCursor | number) => log.session(key).watch(cursor, {}, { signal });
  let entries: ReturnType<typeof entriesAfter>;
  try {
    entries = entriesAfter(JSON.parse(lastEventId) as SessionLogCursor | number);
  } catch (error) {
    // Not one of our ids. A browser does not reconnect after any status other than 200.
    if (error instanceof SyntaxError || error instanceof InvalidArgumentError)
      return new Response(null, { status: 400 });
    throw error;
  }
  const frame = (type: string, id: SessionLogCursor | number, data: unknown = null) =>
    `id: ${JSON.stringify(id)}\nevent: ${type}\ndata: ${JSON.stringify(data)}\n\n`;

  async function* frames(): AsyncGenerator<string> {
    yield 'retry: 1000\n\n';
    while (!signal.aborted) {
      try {
        for await (const { cursor, change, event, error } of entries) {
          yield frame(change ?? (event ? 'message' : 'damaged'), cursor, event ?? error?.message);
        }
      } catch (error) {
        if (!(error instanceof LogWentBackError)) throw error;
        yield frame('reset', 0); // the browser has events that the database has lost
        entries = entriesAfter(0);
      }
    }
  }

  const source = withHeartbeats(frames());
  const encoder = new TextEncoder();
  // Reads an entry only after the previous one was sent: a slow browser would otherwise fill the memory.
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await source.next();
      if (done) controller.close();
      else controller.enqueue(encoder.encode(value));
    },
    cancel: () => closed.abort(),
  });
  return new Response(body, { headers: { 'content-type': 'text/event-stream', 'cache-control': 'no-store' } });
}

/** Proxies close idle connections. */
async function* withHeartbeats(frames: AsyncGenerator<string>): AsyncGenerator<string> {
  let next = frames.next();
  for (;;) {
    const arrived = new AbortController();
    const silence = setTimeout(HEARTBEAT_MS, 'silence' as const, { signal: arrived.signal });
    const result = await Promise.race([next, silence]).finally(() => arrived.abort());
    silence.catch(() => undefined);
    if (result === 'silence') {
      yield ':\n\n';
    } else {
      if (result.done) return;
      yield result.value;
      next = frames.next();
    }
  }
}
