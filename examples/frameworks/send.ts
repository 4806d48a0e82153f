import type { ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { ReadableStream } from 'node:stream/web';

/** For frameworks whose responses are those of Node.js. */
export async function send({ status, headers, body }: Response, response: ServerResponse): Promise<void> {
  response.writeHead(status, Object.fromEntries(headers));
  if (!body) response.end();
  // Rejects when the browser leaves, which is not an error: it reconnects with its last id. Without `fromWeb`, the stream would be
  // cancelled only with its next chunk.
  else await pipeline(Readable.fromWeb(body as ReadableStream), response).catch(() => undefined);
}
