import { storedName } from '../../../src/model/artifact-name.js';
import { fileHeaders } from './file.js';
import { NOTHING_TO_SHOW } from './listener.js';

/** A range of bytes; its end is not included. */
interface Range {
  start: number;
  end: number;
}

/** The file of an artifact, to be read a part at a time. */
interface File {
  size: number;
  sha256: string;
  mimeType?: string | undefined;
  bytes(range: Range): AsyncIterable<Uint8Array>;
}

/**
 * Answers a request for a file, also for a range of it, or if the sender has it.
 *
 * @param onError gets an error that ends the response after it has begun.
 */
export function fileResponse(
  { headers: asked, method, signal }: Request,
  content: File,
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
