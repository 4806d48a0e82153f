import type { IncomingMessage, ServerResponse } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { Readable } from 'node:stream';
import { types } from 'node:util';
import { isRecord } from '../../../src/model/json.js';

/** The longest form, in bytes. */
const MOST = 65_536;

/** For a response without content. */
export const NOTHING_TO_SHOW: Readonly<Record<string, string>> = {
  'cache-control': 'no-store',
  'content-security-policy': "default-src 'none'",
  'x-content-type-options': 'nosniff',
};

/** A listener for `createServer` of Node.js, Express and the like. */
export function listenerOf(answer: (request: Request) => Promise<Response>) {
  return (incoming: IncomingMessage, outgoing: ServerResponse): void => {
    serve(answer, incoming, outgoing).catch(() => {
      // The browser has left, or did not send a valid request.
      if (outgoing.headersSent) outgoing.destroy();
      else outgoing.writeHead(400, NOTHING_TO_SHOW).end();
    });
  };
}

async function serve(
  answer: (request: Request) => Promise<Response>,
  incoming: IncomingMessage & { originalUrl?: string; body?: unknown },
  outgoing: ServerResponse,
): Promise<void> {
  const gone = new AbortController();
  outgoing.once('close', () => gone.abort());
  const headers = new Headers();
  for (const [name, value] of Object.entries(incoming.headersDistinct)) {
    for (const each of value ?? []) headers.append(name, each);
  }
  const { method = 'GET', originalUrl, url = '/' } = incoming;
  // `originalUrl`, since Express removes the path of the mount from `url`. The studio checks the host in the header.
  const request = new Request(new URL(`http://localhost${originalUrl ?? url}`), {
    method,
    headers,
    signal: gone.signal,
    ...(method === 'PUT' && { body: streamOf(incoming), duplex: 'half' }),
    ...(!['GET', 'HEAD', 'PUT'].includes(method) && { body: await bodyOf(incoming) }),
  });
  const response = await answer(request);
  for (const [name, value] of response.headers) if (name !== 'set-cookie') outgoing.setHeader(name, value);
  const cookies = response.headers.getSetCookie();
  if (cookies.length > 0) outgoing.setHeader('set-cookie', cookies);
  outgoing.writeHead(response.status);
  if (!response.body || method === 'HEAD') {
    await response.body?.cancel();
    outgoing.end();
    return;
  }
  outgoing.flushHeaders();
  await pipeline(Readable.fromWeb(response.body), outgoing);
}

/** @throws Error if a body parser of the host has already read it, but not as bytes. */
function streamOf(incoming: IncomingMessage & { body?: unknown }): Uint8Array | ReadableStream {
  if (types.isUint8Array(incoming.body)) return incoming.body;
  if (incoming.readableDidRead) throw new Error('The body has already been read');
  const chunks = incoming.iterator({ destroyOnReturn: false });
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = (await chunks.next()) as IteratorResult<Uint8Array, undefined>;
        if (done) controller.close();
        else controller.enqueue(value);
      },
      // A sender reads a refusal when it has sent everything. Node.js discards only what nobody began to read.
      async cancel() {
        await chunks.return?.();
        incoming.resume();
      },
    },
    { highWaterMark: 0 },
  );
}

/** @throws Error for a body that is not a form's, or is too long. */
async function bodyOf(incoming: IncomingMessage & { body?: unknown }): Promise<string> {
  // A body parser of the host has already read it.
  if (isRecord(incoming.body)) {
    return new URLSearchParams(
      Object.entries(incoming.body).flatMap(([name, value]): [string, string][] =>
        typeof value === 'string' ? [[name, value]] : [],
      ),
    ).toString();
  }
  let text = '';
  for await (const chunk of incoming.setEncoding('utf8')) {
    text += String(chunk);
    if (text.length > MOST) throw new Error('The form is too long');
  }
  return text;
}
