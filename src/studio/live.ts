import type { SessionLogEntry } from '../log/entries.js';
import { LogWentBackError } from '../model/errors.js';
import { decode } from '../model/event-codec.js';
import { SECURITY_HEADERS } from './guard.js';
import { markdown } from './markdown.js';
import { eventList } from './pages/event-view.js';
import type { SessionLogCursor } from '../log/entries.js';
import type { Visit } from './visit.js';

/** A sign of life, for what closes connections on which nothing is sent. */
const HEARTBEAT_MS = 15_000;

/** How long a connection lasts: the browser comes back by itself, and its visitor is authorized again. */
const LONGEST_MS = 5 * 60_000;

/**
 * The events of a session that come, as server-sent events whose data is their markup. The id of each is the cursor to
 * continue from.
 */
export async function liveEvents(visit: Visit): Promise<Response> {
  const { request, params, session, reading, links } = visit;
  const id = request.headers.get('last-event-id') ?? params.get('cursor') ?? '0';
  const cursor = (decode(id)?.value ?? id) as SessionLogCursor;
  const formatted = visit.isRaw ? undefined : await markdown();
  const ended = new AbortController();
  // Checks the cursor, before the response begins.
  const entries = reading.log.session(session).watch(cursor, {}, { signal: ended.signal })[Symbol.asyncIterator]();
  const end = () => {
    ended.abort();
    // Its last entry may have been taken, and the next one not asked for: it would watch for ever.
    void entries.return?.();
  };
  request.signal.addEventListener('abort', end);
  // They keep no process alive: nobody may read the response, or cancel it.
  const timers = [setTimeout(end, LONGEST_MS).unref()];
  const text = (...lines: string[]) => new TextEncoder().encode(`${lines.join('\n')}\n\n`);
  const frame = (entry: SessionLogEntry) => {
    const at = `id: ${JSON.stringify(entry.cursor)}`;
    if (entry.change) return text(at, 'event: reset', 'data: ');
    const shown = entry.event ? { seq: entry.seq, event: entry.event } : { seq: entry.seq, to: entry.seq };
    const markup =
      eventList([shown], { links, session, isNewest: true, markdown: formatted }).get(entry.seq)?.text ?? '';
    return text(at, `data: ${JSON.stringify(markup)}`);
  };
  const stop = () => {
    end();
    request.signal.removeEventListener('abort', end);
    for (const timer of timers) clearTimeout(timer);
  };
  const body = new ReadableStream<Uint8Array>(
    {
      start(controller) {
        controller.enqueue(text('retry: 1000'));
        timers.push(setInterval(() => controller.enqueue(text(':')), HEARTBEAT_MS).unref());
      },
      // One entry at a time, when the one before was sent: a slow reader fills no memory.
      async pull(controller) {
        try {
          const next = await entries.next();
          if (next.done !== true) {
            controller.enqueue(frame(next.value));
            return;
          }
          stop();
        } catch (error) {
          stop();
          // The page loads anew what is there.
          if (error instanceof LogWentBackError) controller.enqueue(text('event: reset', 'data: '));
        }
        controller.close();
      },
      cancel: stop,
    },
    { highWaterMark: 1 },
  );
  return new Response(body, {
    headers: { ...SECURITY_HEADERS, 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' },
  });
}
