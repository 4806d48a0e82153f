import type { IncomingMessage, ServerResponse } from 'node:http';
import { fileResponse } from '../http/file-response.js';
import { handlerOf, refusal } from '../http/handler.js';
import { aFunction, object } from '../model/arguments.js';
import { InvalidArgumentError, InvalidKeyError } from '../model/errors.js';
import { callHost } from '../model/host-callbacks.js';
import type { ArtifactAddress, MikroOrmArtifactService } from './artifact-service.js';

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
  return handlerOf(answer, statusOf, report);
}

const statusOf = (error: unknown) =>
  error instanceof InvalidKeyError || error instanceof InvalidArgumentError ? 404 : undefined;

function artifactOf(query: URLSearchParams): Parameters<ArtifactHandlerOptions['authorize']>[1] | undefined {
  const [appName, userId, sessionId, filename] = ['appName', 'userId', 'sessionId', 'filename'].map((name) =>
    query.get(name),
  );
  const version = query.get('version');
  if (!appName || !userId || !sessionId || !filename || (version !== null && !/^\d{1,10}$/.test(version)))
    return undefined;
  return { appName, userId, sessionId, filename, ...(version !== null && { version: Number(version) }) };
}
