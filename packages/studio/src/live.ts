import { type LogCursor, type SessionLogCursor, type SessionLogEntry, LogWentBackError } from '../../../src/index.js';
import { clearTimeout, setInterval, setTimeout } from '../../../src/model/clock.js';
import { decode, withoutUndefined } from '../../../src/model/json.js';
import { SECURITY_HEADERS } from './guard.js';
import { markdown } from './markdown.js';
import { laneName } from './operations/durations.js';
import { Pairs, authorOf, eventList } from './pages/event-view.js';
import { Hues } from './pages/layout.js';
import { EVENTS } from './reading.js';
import { StateFollower } from './state-changes.js';
import type { Visit } from './visit.js';

/** How often a comment is sent, so that no proxy closes an idle connection. */
const HEARTBEAT_MS = 15_000;

/** How long a connection lasts. The browser then reconnects, and the visitor is authorized again. */
const LONGEST_MS = 5 * 60_000;

/** The least time between two messages to a page that follows the whole log. The page loads its content again after each. */
const REST_MS = 1_000;

const text = (...lines: string[]) => new TextEncoder().encode(`${lines.join('\n')}\n\n`);

/**
 * Sends new events of a session as server-sent events: their data is markup, their id is the cursor at which a new connection
 * continues.
 */
export async function liveEvents(visit: Visit): Promise<Response> {
  const { session, reading, links } = visit;
  const cursor = cursorOf(visit) as SessionLogCursor;
  const formatted = visit.isRaw ? undefined : await markdown();
  const base = await reading.stateAfter(session, cursor.seq);
  const ended = new AbortController();
  // Before the response begins, so that an invalid cursor is answered with 400.
  const entries = reading.log.session(session).watch(cursor, {}, { signal: ended.signal })[Symbol.asyncIterator]();
  let pairs: Pairs | undefined;
  let hues = new Hues([]);
  const state = new StateFollower(base);
  const frame = async (entry: SessionLogEntry) => {
    const at = `id: ${JSON.stringify(entry.cursor)}`;
    if (entry.change) return text(at, 'event: reset', 'data: ');
    const shown = entry.event ? entry : { seq: entry.seq, to: entry.seq };
    if (!pairs) {
      // The calls that may be on the page.
      const { events } = await reading.service.readEvents(session, { before: entry.seq, limit: EVENTS * 3 });
      pairs = new Pairs();
      pairs.add(events);
      if (!base) for (const { seq, event } of events) state.ofEvent(seq, event);
      hues = new Hues(events.slice(-EVENTS).map(({ event }) => authorOf(event)));
    }
    const written = new Map([[entry.seq, state.ofEvent(entry.seq, entry.event ?? {})]]);
    const around = { links, session, hues, isNewest: true, mayAnswer: visit.mayChange, markdown: formatted, written };
    const markup = eventList([shown], around, pairs).get(entry.seq)?.text ?? '';
    return text(at, `data: ${JSON.stringify(markup)}`);
  };
  const branch = visit.params.get('branch') || undefined;
  const isShown = ({ change, event }: SessionLogEntry) =>
    change !== undefined || event === undefined || branch === undefined || laneName(event) === branch;
  const next = async () => {
    for (;;) {
      const result = await entries.next();
      if (result.done === true) return undefined;
      const { seq, event } = result.value;
      if (isShown(result.value)) return frame(result.value);
      if (event) state.ofEvent(seq, event);
    }
  };
  // If nobody is waiting for the next entry, the signal alone would leave the watcher open for ever.
  return streamOf(visit.request, ended, next, () => void entries.return?.());
}

/**
 * Sends an empty server-sent event at once, and when the log has something new for the visitor, at most one a second. It has no cursor,
 * since a position shows how many events the sessions of all users have.
 */
export function liveNow({ request, reading, scope }: Visit): Response {
  const log = reading.log.complete();
  const ended = new AbortController();
  const { signal } = ended;
  let cursor: LogCursor | undefined;
  const hasNews = async (from: LogCursor) => {
    await new Promise((resolve) => setTimeout(resolve, REST_MS).unref());
    for await (const { appName } of log.watch(from, withoutUndefined(scope), { signal })) return appName !== undefined;
    return false;
  };
  const next = async () => {
    if (cursor && !(await hasNews(cursor))) return undefined;
    // The page then loads what came until now.
    cursor = await log.head();
    return text('data: ');
  };
  return streamOf(request, ended, next);
}

/** Where the browser continues, or what the page had when it was made. */
function cursorOf({ request, params }: Visit): unknown {
  const id = request.headers.get('last-event-id') ?? params.get('cursor') ?? '0';
  return decode(id)?.value ?? id;
}

/**
 * @param ended ends what `next` waits for.
 * @param next gives what is sent next; undefined if nothing follows.
 * @param onEnd called when the stream ends.
 */
function streamOf(
  request: Request,
  ended: AbortController,
  next: () => Promise<Uint8Array | undefined>,
  onEnd?: () => void,
): Response {
  const end = () => {
    ended.abort();
    onEnd?.();
  };
  request.signal.addEventListener('abort', end);
  // If nobody reads or cancels the response, the timers must not keep the process alive.
  const timers = [setTimeout(end, LONGEST_MS).unref()];
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
          const frame = await next();
          if (frame !== undefined) {
            controller.enqueue(frame);
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
