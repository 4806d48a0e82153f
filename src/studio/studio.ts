import type { EntityManager } from '@mikro-orm/core';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { aBoolean, aFunction, condition, object, rule, strings } from '../model/arguments.js';
import {
  AdkMikroOrmError,
  CallAnsweredError,
  DamagedSessionError,
  InvalidArgumentError,
  InvalidKeyError,
  LeaseHeldError,
  SessionExistsError,
  SessionNotFoundError,
} from '../model/errors.js';
import { CODEC_OPTIONS, type CodecOptions, type ErrorContext } from '../model/options.js';
import { listenerOf } from '../http/listener.js';
import { assetAt } from './assets/assets.js';
import { Refusal, checkHost, checkScope, formCookie, hostsOf, newFormCookie, type StudioScope } from './guard.js';
import { Links } from './links.js';
import { liveEvents } from './live.js';
import { changePage, isChange } from './pages/changes.js';
import { conversationPage } from './pages/conversation.js';
import { eventFile, eventPage, partFile } from './pages/event-page.js';
import { artifactFile, filesPage } from './pages/files.js';
import { errorPage } from './pages/layout.js';
import { appsPage, sessionsPage, usersPage } from './pages/lists.js';
import { waitingPage } from './pages/waiting.js';
import { FORGET, forgetPage, memoryPage } from './pages/memory.js';
import { doctorPage, nowPage, repairPage, statsPage } from './pages/operations.js';
import { Reading } from './reading.js';
import { Visit, type LogReaders } from './visit.js';

export interface StudioOptions extends CodecOptions {
  /** Called with the driver's own error, which holds SQL and stored values, for the host's log; visitors see none of it. */
  onError?: (error: unknown, context: ErrorContext) => void;
  /** The path that it is mounted at, such as `/studio`; the root by default. */
  basePath?: string;
  /**
   * Says what the sender of a request may see: `{}` for everything, `{ appName }`, `{ userId }` or both for a part, `false` for
   * nothing. It is asked for each request, before anything is read. Any other answer, such as `true` or a `Response`, shows
   * nothing and is reported to `onError`. Without it requests are answered that name `localhost` or a loopback address as
   * their host, whoever sends them.
   */
  authorize?: (request: Request) => StudioScope | false | Promise<StudioScope | false>;
  /**
   * The host names that are answered, with or without a port, such as `studio.example.com`. By default those of the loopback
   * address, and with `authorize` any.
   */
  hosts?: readonly string[];
  /**
   * Whether a visitor may change what is stored; false by default: title and labels, delete (softly) and restore, fork, rewind,
   * answer a call that waits for a person, forget memories. Each is confirmed in a form of the studio (contract H5, K3, K4, K6).
   */
  allowChanges?: boolean;
  /** The readers of the event log whose positions are shown, by name: where each of them is. */
  readers?: () => LogReaders | Promise<LogReaders>;
}

/** Pages of what is stored, as a handler of requests. */
export interface Studio {
  /** Answers a request; for Next, Hono and whatever else has requests of the fetch standard. It never rejects. */
  fetch(this: void, request: Request): Promise<Response>;
  /** The same for `http.createServer` and Express. */
  listener(this: void, request: IncomingMessage, response: ServerResponse): void;
}

const checkOptions = object<StudioOptions>({
  basePath: rule(
    "a path such as '/studio', without a slash at its end",
    (value) => value === '' || (typeof value === 'string' && /^(\/[\w.~-]+)+$/.test(value)),
  ),
  authorize: condition(aFunction),
  hosts: condition(strings),
  allowChanges: aBoolean,
  readers: aFunction,
  onError: aFunction,
  ...CODEC_OPTIONS,
});

type Route = (visit: Visit) => Response | Promise<Response>;

const PAGES: Readonly<Record<string, Route>> = {
  '/': appsPage,
  '/users': usersPage,
  '/sessions': sessionsPage,
  '/waiting': waitingPage,
  '/session': conversationPage,
  '/event': eventPage,
  '/event.json': eventFile,
  '/part': partFile,
  '/files': filesPage,
  '/file': artifactFile,
  '/live': liveEvents,
  '/operations': nowPage,
  '/operations/stats': statsPage,
  '/operations/doctor': doctorPage,
  '/repair': repairPage,
  '/memory': memoryPage,
  [FORGET]: forgetPage,
};

/**
 * Makes pages of the sessions that are stored: lists, conversations with their state, and what is happening now. They change no
 * session, unless `allowChanges` is true.
 *
 * ```ts
 * const studio = createStudio(orm.em, { basePath: '/studio', authorize });
 * createServer(studio.listener).listen(8080, '127.0.0.1');
 * ```
 *
 * @param em the host's `EntityManager`, as for `MikroOrmSessionService`.
 * @throws InvalidArgumentError when an option is not known, or has a value that it cannot have.
 * @throws SchemaError when the ORM has no supported driver, or does not list `adkEntities()`.
 */
export function createStudio(em: EntityManager, options: StudioOptions = {}): Studio {
  const {
    basePath = '',
    authorize,
    hosts: named,
    allowChanges = false,
    readers = () => ({}),
    ...readerOptions
  } = checkOptions(options, 'The options of createStudio');
  const links = new Links(basePath);
  const reading = new Reading(em, readerOptions);
  const hosts = hostsOf(named, authorize !== undefined);

  const answer = async (request: Request): Promise<Response> => {
    checkHost(request, hosts);
    const path = pathOf(request, basePath);
    const asset = assetAt(path);
    if (asset) return asset;
    const scope = authorize ? checkScope(await authorize(request)) : {};
    const route = isChange(path) ? changePage : Object.hasOwn(PAGES, path) ? PAGES[path] : undefined;
    if (!route) throw new Refusal(404, 'There is no such page.');
    const methods = ['GET', 'HEAD', ...(isChange(path) || path === FORGET ? ['POST'] : [])];
    if (!methods.includes(request.method)) throw new Refusal(405, 'This page is only read.');
    const cookie = allowChanges ? (formCookie(request) ?? newFormCookie()) : undefined;
    return route(new Visit(request, path, scope, links, reading, readers, cookie));
  };

  const fetch = async (request: Request): Promise<Response> => {
    try {
      return await answer(request);
    } catch (error) {
      const [status, title] = statusOf(error);
      if (status !== 500) return errorPage(links, status, title, messageOf(error));
      reading.database.report(error, { operation: 'studio', key: {} });
      return errorPage(links, status, title, 'Something has failed. The log of the server says what.');
    }
  };
  return { fetch, listener: listenerOf(fetch) };
}

/** @throws Refusal of 404 for a path that is not below the one where the studio is mounted. */
function pathOf({ url }: Request, basePath: string): string {
  const { pathname } = new URL(url);
  if (pathname === basePath) return '/';
  if (!pathname.startsWith(`${basePath}/`)) throw new Refusal(404, 'There is no such page.');
  return pathname.slice(basePath.length);
}

const CONFLICTS = [SessionExistsError, LeaseHeldError, DamagedSessionError, CallAnsweredError];

const messageOf = (error: unknown) => (error instanceof Error ? error.message : '');

function statusOf(error: unknown): [status: number, title: string] {
  if (error instanceof Refusal) return [error.status, error.status === 404 ? 'Not found' : 'Not answered'];
  if (error instanceof InvalidKeyError || error instanceof InvalidArgumentError) return [400, 'This cannot be read'];
  if (error instanceof SessionNotFoundError) return [404, 'Not found'];
  if (CONFLICTS.some((conflict) => error instanceof conflict)) return [409, 'Not possible now'];
  // Its message has neither SQL nor credentials (contract A12).
  if (error instanceof AdkMikroOrmError) return [503, 'The database does not answer as expected'];
  return [500, 'Something has failed'];
}
