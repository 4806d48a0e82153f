import type { IncomingMessage, ServerResponse } from 'node:http';
import {
  InvalidArgumentError,
  InvalidKeyError,
  LogWentBackError,
  type EventLog,
  type SessionKey,
  type SessionLogCursor,
  type SessionLogEntry,
} from '../../../src/index.js';
import { aDuration, aFunction, anAbortSignal, object } from '../../../src/model/arguments.js';
import { clearInterval, clearTimeout, setInterval, setTimeout } from '../../../src/model/clock.js';
import { callHost } from '../../../src/model/host-callbacks.js';
import { decode } from '../../../src/model/json.js';
import { handlerOf, refusal } from './handler.js';
import { NOTHING_TO_SHOW } from './listener.js';

const checkOptions = object<Parameters<typeof createEventStreamHandler>[1]>(
  { authorize: aFunction, authorizedMs: aDuration, onError: aFunction, signal: anAbortSignal },
  'authorize',
);

const AUTHORIZED_MS = 300_000;

/** Proxies close connections on which nothing is sent. */
const HEARTBEAT_MS = 15_000;

/**
 * Sends the events of a session as server-sent events, first those that are stored and then new ones. A browser that connects again
 * sends the id of the last one (`Last-Event-ID`), and continues there: no event is lost or doubled. A page that already shows events
 * adds `?lastEventId=…` to the address, with the number of the last one.
 *
 * ```ts
 * app.get('/events', createEventStreamHandler(log, { authorize }).listener);
 * ```
 *
 * The type of a message is `message`, with the event; `damaged`, with what is wrong with an event that cannot be read; or `reset`:
 * after a rewind, for example, the page removes all events, and they follow from the first one.
 *
 * @throws InvalidArgumentError without `authorize`, or if an option is unknown.
 */
export function createEventStreamHandler(
  log: EventLog,
  options: {
    /** Says whose events the sender of a request gets, or `false` for none. Called for each request, before anything is read. */
    authorize: (request: Request) => SessionKey | false | Promise<SessionKey | false>;
    /** How long that holds, in ms; 300,000 by default. The stream ends then, and the browser connects again. */
    authorizedMs?: number;
    /** Gets errors that are answered with 500 or 503, and those that end a response that has begun. */
    onError?: (error: unknown) => void;
    /** Ends all streams when it fires, before the server stops. Browsers connect again. */
    signal?: AbortSignal;
  },
): {
  /** Answers a request of the fetch standard, for Next, Hono and others. It never rejects. */
  fetch(this: void, request: Request): Promise<Response>;
  /** Answers a request of `http.createServer` or Express. */
  listener(this: void, request: IncomingMessage, response: ServerResponse): void;
} {
  const checked = checkOptions(options, 'The options of createEventStreamHandler');
  const { authorize, authorizedMs = AUTHORIZED_MS, onError, signal: stops } = checked;
  const report = (error: unknown) => callHost(onError, error);
  const answer = async (request: Request): Promise<Response> => {
    if (request.method !== 'GET') return refusal(405, { allow: 'GET' });
    const key = await authorize(request);
    if (!key) return refusal(403);
    const begins = new URL(request.url).searchParams.get('lastEventId');
    const id = request.headers.get('last-event-id') ?? begins ?? '0';
    const closed = new AbortController();
    const signal = AbortSignal.any([closed.signal, request.signal, ...(stops ? [stops] : [])]);
    // Reads the key now: the host's object may change later.
    const session = log.session(key);
    const entriesAfter = (cursor: unknown) => session.watch(cursor as SessionLogCursor, {}, { signal });
    // Before the response begins, so that another id than ours is refused: a browser does not connect again after that.
    const messages = messagesOf(entriesAfter, entriesAfter(decode(id)?.value ?? id), signal);
    const stream = streamOf(messages, { close: () => closed.abort(), authorizedMs, onError: report });
    return new Response(stream, { headers: { ...NOTHING_TO_SHOW, 'content-type': 'text/event-stream' } });
  };
  return handlerOf(answer, statusOf, report);
}

const statusOf = (error: unknown) =>
  error instanceof InvalidKeyError ? 404 : error instanceof InvalidArgumentError ? 400 : undefined;

type Entries = AsyncIterable<SessionLogEntry>;

async function* messagesOf(
  entriesAfter: (cursor: number) => Entries,
  first: Entries,
  signal: AbortSignal,
): AsyncGenerator<string, void> {
  const message = (type: string, id: unknown, data: unknown = null) =>
    `id: ${JSON.stringify(id)}\nevent: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
  yield 'retry: 1000\n\n';
  let entries = first;
  while (!signal.aborted) {
    try {
      for await (const { cursor, change, event, error } of entries)
        yield message(change ?? (event ? 'message' : 'damaged'), cursor, event ?? error?.message);
    } catch (error) {
      if (!(error instanceof LogWentBackError)) throw error;
      // The browser has events that the database has lost.
      yield message('reset', 0);
      entries = entriesAfter(0);
    }
  }
}

/** Reads a message only after the previous one was sent. */
function streamOf(
  messages: AsyncGenerator<string, void>,
  { close, authorizedMs, onError }: { close: () => void; authorizedMs: number; onError: (error: unknown) => void },
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  let timer: NodeJS.Timeout | undefined;
  const limit = setTimeout(close, authorizedMs).unref();
  let isOver = false;
  const end = () => {
    isOver = true;
    clearTimeout(limit);
    close();
    // If nobody waits for a message, the signal alone would leave the watcher open.
    const left = messages.return().catch(() => undefined);
    void left.then(() => clearInterval(timer));
  };
  return new ReadableStream<Uint8Array>({
    start(controller) {
      timer = setInterval(() => {
        if (!isOver && (controller.desiredSize ?? 0) > 0) controller.enqueue(encoder.encode(':\n\n'));
      }, HEARTBEAT_MS);
      timer.unref();
    },
    async pull(controller) {
      try {
        const next = await messages.next();
        // Not an error: the browser has left and closed the stream.
        if (isOver) return;
        if (!next.done) controller.enqueue(encoder.encode(next.value));
        else {
          end();
          controller.close();
        }
      } catch (error) {
        end();
        onError(error);
        throw error;
      }
    },
    cancel: end,
  });
}
