import type { MikroOrmMemoryService, StoredMemory, DamagedMemoryError } from '../../../../src/index.js';
import { textSaidIn } from '../../../../src/conversation/said.js';
import { withoutUndefined } from '../../../../src/model/json.js';
import { counted, shortened } from '../operations/words.js';
import { Refusal } from '../guard.js';
import { html } from '../html.js';
import { PAGE } from '../reading.js';
import type { Visit } from '../visit.js';
import { changed } from './changes.js';
import { ago, codeOf, empty, field, firstOf, nextLink, page, searchForm, table } from './layout.js';

export const FORGET = '/forget';

/** The memories of a user, or of all users of an app: in pages, or those that a search finds. */
export async function memoryPage(visit: Visit): Promise<Response> {
  const { links, params, reading, appName, userId } = visit;
  const damaged: DamagedMemoryError[] = [];
  const service = reading.memories((error) => void damaged.push(error));
  const owner = { appName, ...withoutUndefined({ userId }) };
  const query = params.get('q') ?? '';
  const isSearch = query !== '' && userId !== undefined;
  const { memories, next } = isSearch
    ? {
        ...(await service.searchMemory({
          appName,
          userId,
          query,
          limit: PAGE,
          maxCharacters: Number.MAX_SAFE_INTEGER,
          includeApp: false,
        })),
        next: undefined,
      }
    : await listed(service, owner, params);
  const of = { app: appName, user: userId };
  const columns: Parameters<typeof table<StoredMemory & { score?: number }>>[1] = {
    What: ({ author, content }) =>
      html`${typeof author === 'string' && html`<span class="id"><bdi>${shortened(author, SHOWN_OF_NAME)}</bdi></span>`}
        <bdi>${shortened(textSaidIn(content), SHOWN)}</bdi>`,
    Session: ({ sessionId }) =>
      sessionId !== undefined &&
      (userId === undefined
        ? html`<bdi>${sessionId}</bdi>`
        : html`<a class="quiet" href="${links.ofSession('/session', { appName, userId, sessionId })}"
            ><bdi>${sessionId}</bdi></a
          >`),
    '#When': ({ timestamp }) => ago(timestamp === undefined ? undefined : Date.parse(timestamp)),
    '#Score': isSearch && (({ score }) => score?.toFixed(2)),
    '>Forget':
      visit.mayChange && (({ id, sessionId }) => html`<a href="${forgetLink(visit, id, sessionId)}">Forget</a>`),
  };
  const none = isSearch
    ? empty('Nothing found', 'No memory contains any of these words.')
    : empty('No memories', 'What your application adds with ', codeOf('addSessionToMemory'), ' appears here.');
  const body = html`<div class="heading">
      <h1>Memory of ${userId === undefined ? html`all users of <bdi>${appName}</bdi>` : html`<bdi>${userId}</bdi>`}</h1>
      ${visit.mayChange && memories.length > 0 && html`<div class="actions"><a class="button" href="${forgetLink(visit)}">Forget all</a></div>`}
    </div>
    ${userId !== undefined && searchForm(links.to('/memory'), { app: appName, user: userId }, field(visit, 'q', 'Words'))}
    ${table(memories, columns, none)}
    ${
      damaged.length > 0 &&
      html`<p role="alert">
        ${counted(damaged.length, 'memory', 'memories')} cannot be read:
        ${damaged.slice(0, PAGE).map(({ memoryId, sessionId }) => html`<a href="${forgetLink(visit, memoryId, sessionId)}"><bdi>${memoryId}</bdi></a> `)}
      </p>`
    }
    ${nextLink(next && links.to('/memory', { ...of, after: next.id, session: next.sessionId }))}`;
  return page(visit, { title: 'Memory', ...placeOf(visit), body });
}

const placeOf = ({ links, appName, userId }: Visit) => ({
  appName,
  crumbs: userId === undefined ? [] : [{ text: userId, href: links.sessions(appName, userId) }],
});

const forgetLink = ({ links, appName, userId }: Visit, memory?: string, session?: string) =>
  links.to(FORGET, { app: appName, user: userId, memory, session });

async function listed(
  service: MikroOrmMemoryService,
  owner: { appName: string; userId?: string },
  params: URLSearchParams,
) {
  const id = params.get('after');
  const after =
    id === null ? undefined : { id, ...withoutUndefined({ sessionId: params.get('session') ?? undefined }) };
  const { rows, last } = firstOf(
    await service.listMemories({ ...owner, limit: PAGE + 1, ...withoutUndefined({ after }) }),
  );
  return { memories: rows, next: last };
}

/** How many characters are shown of a text, and of an author's name. */
const SHOWN = 300;
const SHOWN_OF_NAME = 60;

/** Asks whether to forget a memory, those of a session, or all (GET), and forgets them (POST). */
export async function forgetPage(visit: Visit): Promise<Response> {
  if (!visit.mayChange) throw new Refusal(403, 'Nothing can be changed here. It takes allowChanges.');
  const { links, params, reading, request, appName, userId } = visit;
  const memoryId = params.get('memory') ?? undefined;
  const sessionId = params.get('session') ?? undefined;
  const service = reading.memories(() => undefined);
  const isAll = memoryId === undefined && sessionId === undefined;
  const which = { appName, ...withoutUndefined({ userId, memoryId, sessionId }), ...(isAll && { all: true as const }) };
  const of = { app: appName, user: userId };
  if (request.method === 'POST')
    return changed(visit, async () => {
      await service.forget(which);
      return links.to('/memory', of);
    });
  const count = await service.forget({ ...which, dryRun: true });
  if (count === 0) throw new Refusal(404, 'There is no such memory. It was forgotten, or never existed.');
  const body = html`<h1>Forget</h1>
    <form class="form" method="post" action="${forgetLink(visit, memoryId, sessionId)}">
      ${visit.tokenField}
      <p>
        <strong>${counted(count, 'memory', 'memories')}</strong>
        ${userId === undefined ? html`for all users of <bdi>${appName}</bdi>` : html`of <bdi>${userId}</bdi>`} will be
        deleted for good. What is said in sessions stays there.
      </p>
      <label class="check"><input type="checkbox" name="confirm" value="yes" required />Yes, forget</label>
      <div class="actions">
        <button class="danger">Forget</button>
        <a class="button" href="${links.to('/memory', of)}">Cancel</a>
      </div>
    </form>`;
  return page(visit, { title: 'Forget', ...placeOf(visit), body });
}
