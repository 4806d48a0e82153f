import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import {
  ArtifactTooLargeError,
  InvalidArgumentError,
  InvalidKeyError,
  type ArtifactAddress,
  type MikroOrmArtifactService,
} from '../../../src/index.js';
import { aFunction, object } from '../../../src/model/arguments.js';
import { callHost } from '../../../src/model/host-callbacks.js';
import { fileResponse } from './file-response.js';
import { handlerOf, refusal } from './handler.js';
import { NOTHING_TO_SHOW } from './listener.js';

export interface ArtifactHandlerOptions {
  /** Whether the sender of a request may read the file. Called for each request, before anything is read. Only `true` allows it. */
  authorize: (
    request: Request,
    artifact: Omit<ArtifactAddress, 'version'> & { version?: number },
  ) => boolean | Promise<boolean>;
  /**
   * Whether the sender of a `PUT` may save its body as a new version of the file. Called before any of the body is read. Only `true`
   * allows it; without this option nobody may.
   */
  authorizeUpload?: (request: Request, artifact: Omit<ArtifactAddress, 'version'>) => boolean | Promise<boolean>;
  /** Gets errors that are answered with 500 or 503, and those that end a response that has begun. */
  onError?: (error: unknown) => void;
}

const checkOptions = object<ArtifactHandlerOptions>(
  { authorize: aFunction, authorizeUpload: aFunction, onError: aFunction },
  'authorize',
);

/**
 * Serves artifacts by HTTP, a part at a time, with ranges and an ETag. Browsers display images and download everything else; nothing
 * in a file is executed. The query of a request has `appName`, `userId`, `sessionId`, `filename` and optionally `version`.
 *
 * With `authorizeUpload` a `PUT` saves its body, of the type of its header `Content-Type`, and is answered with 201 and the new
 * version as JSON, `{ "version": 0 }`; with 413 if it is larger than `maxBytes` of the service, and 415 without a type.
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
  const { authorize, authorizeUpload, onError } = checkOptions(options, 'The options of createArtifactHandler');
  const report = (error: unknown) => callHost(onError, error);
  const answer = async (request: Request): Promise<Response> => {
    const isUpload = authorizeUpload !== undefined && request.method === 'PUT';
    if (!isUpload && request.method !== 'GET' && request.method !== 'HEAD')
      return refusal(405, { allow: authorizeUpload ? 'GET, HEAD, PUT' : 'GET, HEAD' });
    const artifact = artifactOf(new URL(request.url).searchParams);
    if (!artifact) return refusal(404);
    if (isUpload) {
      const { version, ...names } = artifact;
      if (version !== undefined) return refusal(400);
      const mayUpload: unknown = await authorizeUpload(request, { ...names });
      return mayUpload === true ? save(request, names) : refusal(403);
    }
    const isAllowed: unknown = await authorize(request, { ...artifact });
    if (isAllowed !== true) return refusal(403);
    const content = await artifacts.openArtifact(artifact);
    return content ? fileResponse(request, content, artifact.filename, report) : refusal(404);
  };
  const save = async (request: Request, names: Omit<ArtifactAddress, 'version'>): Promise<Response> => {
    const mimeType = request.headers.get('content-type');
    if (!mimeType) return refusal(415);
    try {
      const content = request.body ?? Readable.from([]);
      const version = await artifacts.saveArtifactStream({ ...names, mimeType, content });
      return Response.json({ version }, { status: 201, headers: NOTHING_TO_SHOW });
    } catch (error) {
      // The sender has left.
      if (request.signal.aborted) return refusal(400);
      throw error;
    }
  };
  return handlerOf(answer, statusOf, report);
}

function statusOf(error: unknown): number | undefined {
  if (error instanceof ArtifactTooLargeError) return 413;
  return error instanceof InvalidKeyError || error instanceof InvalidArgumentError ? 404 : undefined;
}

function artifactOf(query: URLSearchParams): Parameters<ArtifactHandlerOptions['authorize']>[1] | undefined {
  const [appName, userId, sessionId, filename] = ['appName', 'userId', 'sessionId', 'filename'].map((name) =>
    query.get(name),
  );
  const version = query.get('version');
  if (!appName || !userId || !sessionId || !filename || (version !== null && !/^\d{1,10}$/.test(version)))
    return undefined;
  return { appName, userId, sessionId, filename, ...(version !== null && { version: Number(version) }) };
}
