import { type SessionLogCursor, type SessionLogEntry, LogWentBackError } from '../../../src/index.js';
import { decode } from '../../../src/model/json.js';
import { SECURITY_HEADERS } from './guard.js';
import { markdown } from './markdown.js';
import { Pairs, authorOf, eventList } from './pages/event-view.js';
import { Hues } from './pages/layout.js';
import { EVENTS } from './reading.js';
import type { Visit } from './visit.js';

/** How often a comment is sent, so that no proxy closes an idle connection. */
const HEARTBEAT_MS = 15_000;

/** How long a connection lasts. The browser then reconnects, and the visitor is authorized again. */
const LONGEST_MS = 5 * 60_000;

/**
 * Sends new events of a session as server-sent events: their data is markup, their id is the cursor at which a new connection
 * continues.
 */
export async function liveEvents(visit: Visit): Promise<Response> {
  const { request, params, session, reading, links } = visit;
  const id = request.headers.get('last-event-id') ?? params.get('cursor') ?? '0';
  const cursor = (decode(id)?.value ?? id) as SessionLogCursor;
  const formatted = visit.isRaw ? undefined : await markdown();
  const ended = new AbortController();
  // Before the response begins, so that an invalid cursor is answered with 400.
  const entries = reading.log.session(session).watch(cursor, {}, { signal: ended.signal })[Symbol.asyncIterator]();
  const end = () => {
    ended.abort();
    // If nobody is waiting for the next entry, the signal alone would leave the watcher open for ever.
    void entries.return?.();
  };
  request.signal.addEventListener('abort', end);
  // If nobody reads or cancels the response, the timers must not keep the process alive.
  const timers = [setTimeout(end, LONGEST_MS).unref()];
  const text = (...lines: string[]) => new TextEncoder().encode(`${lines.join('\n')}\n\n`);
  let pairs: Pairs | undefined;
  let hues = new Hues([]);
  const frame = async (entry: SessionLogEntry) => {
    const at = `id: ${JSON.stringify(entry.cursor)}`;
    if (entry.change) return text(at, 'event: reset', 'data: ');
    const shown = entry.event ? entry : { seq: entry.seq, to: entry.seq };
    if (!pairs) {
      // The calls that may be on the page.
      const { events } = await reading.service.readEvents(session, { before: entry.seq, limit: EVENTS * 3 });
      pairs = new Pairs();
      pairs.add(events);
      hues = new Hues(events.slice(-EVENTS).map(({ event }) => authorOf(event)));
    }
    const around = { links, session, hues, isNewest: true, mayAnswer: visit.mayChange, markdown: formatted };
    const markup = eventList([shown], around, pairs).get(entry.seq)?.text ?? '';
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
      // Reads an entry only after the previous one was sent: a slow reader would otherwise fill the memory.
      async pull(controller) {
        try {
          const next = await entries.next();
          if (next.done !== true) {
            controller.enqueue(await frame(next.value));
            return;
          }
          stop();
        } catch (error) {
          stop();
          // Makes the page reload.
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
