import type { IncomingMessage, ServerResponse } from 'node:http';
import { handlerOf, refusal } from '../http/handler.js';
import { NOTHING_TO_SHOW } from '../http/listener.js';
import { aFunction, anAbortSignal, object } from '../model/arguments.js';
import { InvalidArgumentError, InvalidKeyError, LogWentBackError } from '../model/errors.js';
import { callHost } from '../model/host-callbacks.js';
import { decode } from '../model/json.js';
import type { SessionKey } from '../model/keys.js';
import type { SessionLogCursor, SessionLogEntry } from './entries.js';
import type { EventLog } from './event-log.js';

const checkOptions = object<Parameters<typeof createEventStreamHandler>[1]>(
  { authorize: aFunction, onError: aFunction, signal: anAbortSignal },
  'authorize',
);

/** Proxies close connections on which nothing is sent. */
const HEARTBEAT_MS = 15_000;

/**
 * Sends the events of a session as server-sent events, first those that are stored and then new ones. A browser that connects again
 * sends the id of the last one (`Last-Event-ID`), and continues there: no event is lost or doubled.
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
  const { authorize, onError, signal: stops } = checkOptions(options, 'The options of createEventStreamHandler');
  const report = (error: unknown) => callHost(onError, error);
  const answer = async (request: Request): Promise<Response> => {
    if (request.method !== 'GET') return refusal(405, { allow: 'GET' });
    const key = await authorize(request);
    if (!key) return refusal(403);
    const id = request.headers.get('last-event-id') ?? '0';
    const closed = new AbortController();
    const signal = AbortSignal.any([closed.signal, request.signal, ...(stops ? [stops] : [])]);
    const entriesAfter = (cursor: unknown) => log.session(key).watch(cursor as SessionLogCursor, {}, { signal });
    // Before the response begins, so that another id than ours is refused: a browser does not connect again after that.
    const messages = messagesOf(entriesAfter, entriesAfter(decode(id)?.value ?? id), signal);
    const stream = streamOf(messages, () => closed.abort(), report);
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
  close: () => void,
  onError: (error: unknown) => void,
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  let timer: NodeJS.Timeout | undefined;
  let isOver = false;
  const end = () => {
    isOver = true;
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
