import type { IncomingMessage, ServerResponse } from 'node:http';
import { fileHeaders } from '../http/file.js';
import { NOTHING_TO_SHOW, listenerOf } from '../http/listener.js';
import { aFunction, object } from '../model/arguments.js';
import { AdkMikroOrmError, InvalidArgumentError, InvalidKeyError } from '../model/errors.js';
import { callHost } from '../model/host-callbacks.js';
import { storedName } from './artifact-name.js';
import type { ArtifactAddress, ArtifactContent, MikroOrmArtifactService } from './artifact-service.js';

export interface ArtifactHandlerOptions {
  /** Whether the sender of a request may read the file. Called for each request, before anything is read. Only `true` allows it. */
  authorize: (
    request: Request,
    artifact: Omit<ArtifactAddress, 'version'> & { version?: number },
  ) => boolean | Promise<boolean>;
  /** Gets errors that are answered with 500 or 503, and those that end a response that has begun. */
  onError?: (error: unknown) => void;
}

const checkOptions = object<ArtifactHandlerOptions>({ authorize: aFunction, onError: aFunction }, 'authorize');

/**
 * Serves artifacts by HTTP, a part at a time, with ranges and an ETag. Browsers display images and download everything else; nothing
 * in a file is executed. The query of a request has `appName`, `userId`, `sessionId`, `filename` and optionally `version`.
 *
 * ```ts
 * app.use('/files', createArtifactHandler(artifactService, { authorize }).listener);
 * ```
 *
 * @throws InvalidArgumentError without `authorize`, or if an option is unknown.
 */
export function createArtifactHandler(
  artifacts: MikroOrmArtifactService,
  options: ArtifactHandlerOptions,
): {
  /** Answers a request of the fetch standard, for Next, Hono and others. It never rejects. */
  fetch(this: void, request: Request): Promise<Response>;
  /** Answers a request of `http.createServer` or Express. */
  listener(this: void, request: IncomingMessage, response: ServerResponse): void;
} {
  const { authorize, onError } = checkOptions(options, 'The options of createArtifactHandler');
  const report = (error: unknown) => callHost(onError, error);
  const answer = async (request: Request): Promise<Response> => {
    if (request.method !== 'GET' && request.method !== 'HEAD') return refusal(405, { allow: 'GET, HEAD' });
    const artifact = artifactOf(new URL(request.url).searchParams);
    if (!artifact) return refusal(404);
    const isAllowed: unknown = await authorize(request, { ...artifact });
    if (isAllowed !== true) return refusal(403);
    const content = await artifacts.openArtifact(artifact);
    return content ? fileResponse(request, content, artifact.filename, report) : refusal(404);
  };
  const fetch = async (request: Request): Promise<Response> => {
    try {
      return await answer(request);
    } catch (error) {
      if (error instanceof InvalidKeyError || error instanceof InvalidArgumentError) return refusal(404);
      report(error);
      return refusal(error instanceof AdkMikroOrmError ? 503 : 500);
    }
  };
  return { fetch, listener: listenerOf(fetch) };
}

const refusal = (status: number, headers = {}) =>
  new Response(null, { status, headers: { ...NOTHING_TO_SHOW, ...headers } });

function artifactOf(query: URLSearchParams): Parameters<ArtifactHandlerOptions['authorize']>[1] | undefined {
  const [appName, userId, sessionId, filename] = ['appName', 'userId', 'sessionId', 'filename'].map((name) =>
    query.get(name),
  );
  const version = query.get('version');
  if (!appName || !userId || !sessionId || !filename || (version !== null && !/^\d{1,10}$/.test(version)))
    return undefined;
  return { appName, userId, sessionId, filename, ...(version !== null && { version: Number(version) }) };
}

/** A range of bytes; its end is not included. */
interface Range {
  start: number;
  end: number;
}

/** @param onError gets an error that ends the response after it has begun. */
export function fileResponse(
  { headers: asked, method, signal }: Request,
  content: ArtifactContent,
  filename: string,
  onError: (error: unknown) => void,
): Response {
  const { size, sha256, mimeType } = content;
  const etag = `"${sha256}"`;
  const headers: Record<string, string> = {
    ...fileHeaders(storedName(filename), mimeType),
    'accept-ranges': 'bytes',
    // A cache must ask each time: the version may be deleted, or the visitor may lose the right to see it.
    'cache-control': 'private, no-cache',
    etag,
  };
  const known = (asked.get('if-none-match') ?? '').split(',').map((each) => each.trim().replace(/^W\//, ''));
  if (known.includes(etag) || known.includes('*')) return new Response(null, { status: 304, headers });
  const ifRange = asked.get('if-range');
  const isRange = method === 'GET' && (ifRange === null || ifRange === etag);
  const range = isRange ? rangeOf(asked.get('range'), size) : undefined;
  if (range === 'none') {
    return new Response(null, { status: 416, headers: { ...NOTHING_TO_SHOW, 'content-range': `bytes */${size}` } });
  }
  const { start, end } = range ?? { start: 0, end: size };
  headers['content-length'] = String(end - start);
  if (range) headers['content-range'] = `bytes ${start}-${end - 1}/${size}`;
  const body = method === 'HEAD' ? null : streamOf(content.bytes({ start, end }), signal, onError);
  return new Response(body, { status: range ? 206 : 200, headers });
}

/** @returns undefined for the whole file, also for several ranges; `none` for a range beyond the end. */
function rangeOf(header: string | null, size: number): Range | 'none' | undefined {
  const [, first = '', last = ''] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header ?? '') ?? [];
  if (first === '' && last === '') return undefined;
  const start = first === '' ? Math.max(0, size - Number(last)) : Number(first);
  const end = first === '' || last === '' ? size : Math.min(size, Number(last) + 1);
  if (first !== '' && last !== '' && Number(last) < Number(first)) return undefined;
  return start >= size || end <= start ? 'none' : { start, end };
}

/** Reads a part only after the previous one was sent. */
function streamOf(
  parts: AsyncIterable<Uint8Array>,
  signal: AbortSignal,
  onError: (error: unknown) => void,
): ReadableStream<Uint8Array> {
  const reader = parts[Symbol.asyncIterator]();
  let isLeft = false;
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const next = signal.aborted ? undefined : await reader.next();
        // Not an error: the client has left and closed the stream.
        if (isLeft) return;
        if (!next || next.done) controller.close();
        else controller.enqueue(next.value);
      } catch (error) {
        onError(error);
        throw error;
      }
    },
    async cancel() {
      isLeft = true;
      await reader.return?.();
    },
  });
}
