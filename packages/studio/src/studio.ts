import type { EntityManager } from '@mikro-orm/core';
import { aBoolean, aFunction, condition, object, rule, strings } from '../../../src/model/arguments.js';
import {
  AdkMikroOrmError,
  CallAnsweredError,
  DamagedSessionError,
  InvalidArgumentError,
  InvalidKeyError,
  LeaseHeldError,
  AlreadyExistsError,
  SessionNotFoundError,
} from '../../../src/index.js';
import { CODEC_OPTIONS, TOOL_APPS } from '../../../src/model/options.js';
import { listenerOf } from '../../http/src/listener.js';
import { assetAt } from './assets/assets.js';
import { Refusal, checkHost, checkScope, formCookie, hostsOf, newFormCookie } from './guard.js';
import { Links } from './links.js';
import { liveEvents, liveNow } from './live.js';
import { changePage, isChange } from './pages/changes.js';
import { conversationPage } from './pages/conversation.js';
import { eventFile, eventPage, partFile } from './pages/event-page.js';
import { artifactFile, filesPage } from './pages/files.js';
import { errorPage } from './pages/layout.js';
import { sessionsPage, usersPage } from './pages/lists.js';
import { nowPage } from './pages/now.js';
import { statePage } from './pages/state.js';
import { timePage } from './pages/time.js';
import { usagePage } from './pages/usage.js';
import { waitingPage } from './pages/waiting.js';
import { FORGET, forgetPage, memoryPage } from './pages/memory.js';
import { doctorPage, leasesPage, repairPage, statsPage } from './pages/operations.js';
import { somePrices } from './operations/prices.js';
import type { Studio, StudioOptions } from './options.js';
import { Reading } from './reading.js';
import { Visit } from './visit.js';

const checkOptions = object<StudioOptions>({
  basePath: rule(
    "a path such as '/studio', without a slash at its end",
    (value) => value === '' || (typeof value === 'string' && /^(\/[\w.~-]+)+$/.test(value)),
  ),
  authorize: condition(aFunction),
  hosts: condition(strings),
  allowChanges: aBoolean,
  toolApps: TOOL_APPS,
  prices: somePrices,
  readers: aFunction,
  onAnswer: aFunction,
  onError: aFunction,
  ...CODEC_OPTIONS,
});

type Route = (visit: Visit) => Response | Promise<Response>;

const PAGES: Readonly<Record<string, Route>> = {
  '/': nowPage,
  '/users': usersPage,
  '/sessions': sessionsPage,
  '/waiting': waitingPage,
  '/session': conversationPage,
  '/event': eventPage,
  '/event.json': eventFile,
  '/part': partFile,
  '/time': timePage,
  '/state': statePage,
  '/files': filesPage,
  '/file': artifactFile,
  '/live': liveEvents,
  '/live-now': liveNow,
  '/usage': usagePage,
  '/operations': leasesPage,
  '/operations/stats': statsPage,
  '/operations/doctor': doctorPage,
  '/repair': repairPage,
  '/memory': memoryPage,
  [FORGET]: forgetPage,
};

/**
 * Makes pages of the stored sessions: lists, conversations with their state, and what is happening now. Visitors can change
 * nothing, unless `allowChanges` is true.
 *
 * ```ts
 * const studio = createStudio(orm.em, { basePath: '/studio', authorize });
 * createServer(studio.listener).listen(8080, '127.0.0.1');
 * ```
 *
 * @param em the host's `EntityManager`, as for `MikroOrmSessionService`.
 * @throws InvalidArgumentError if an option is unknown or its value is invalid.
 * @throws SchemaError if the ORM has no supported driver, or does not list `adkEntities()`.
 */
export function createStudio(em: EntityManager, options: StudioOptions = {}): Studio {
  const {
    basePath = '',
    authorize,
    hosts: named,
    allowChanges = false,
    prices,
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
    if (!methods.includes(request.method)) throw new Refusal(405, 'This page can only be read.');
    const cookie = allowChanges ? (formCookie(request) ?? newFormCookie()) : undefined;
    return route(new Visit(request, path, scope, links, reading, readers, cookie, prices));
  };

  const fetch = async (request: Request): Promise<Response> => {
    try {
      return await answer(request);
    } catch (error) {
      const [status, title] = statusOf(error);
      if (status !== 500) return errorPage(links, status, title, messageOf(error));
      reading.database.report(error, { operation: 'studio', key: {} });
      return errorPage(links, status, title, 'The log of the server says what.');
    }
  };
  return { fetch, listener: listenerOf(fetch) };
}

/** @throws Refusal of 404 for a path outside `basePath`. */
function pathOf({ url }: Request, basePath: string): string {
  const { pathname } = new URL(url);
  if (pathname === basePath) return '/';
  if (!pathname.startsWith(`${basePath}/`)) throw new Refusal(404, 'There is no such page.');
  return pathname.slice(basePath.length);
}

const CONFLICTS = [AlreadyExistsError, LeaseHeldError, DamagedSessionError, CallAnsweredError];

const messageOf = (error: unknown) => (error instanceof Error ? error.message : '');

function statusOf(error: unknown): [status: number, title: string] {
  if (error instanceof Refusal) return [error.status, error.status === 404 ? 'Not found' : 'Not answered'];
  if (error instanceof InvalidKeyError || error instanceof InvalidArgumentError) return [400, 'This cannot be read'];
  if (error instanceof SessionNotFoundError) return [404, 'Not found'];
  if (CONFLICTS.some((conflict) => error instanceof conflict)) return [409, 'Not possible now'];
  // The message is shown: it has neither SQL nor credentials (contract A12).
  if (error instanceof AdkMikroOrmError) return [503, 'The database does not answer as expected'];
  return [500, 'Something has failed'];
}
