import { examine, type Finding } from '../operations/doctor.js';
import {
  SessionMaintenance,
  SessionProjection,
  type SessionStats,
  LeaseHeldError,
  type SessionKey,
} from '../../../../src/index.js';
import { bytes, counted, number, repairCommand } from '../operations/words.js';
import { html, type Content, type Html } from '../html.js';
import type { Links } from '../links.js';
import { notFound, type Visit } from '../visit.js';
import { ago, card, chip, codeOf, commandOf, empty, lasting, page, table } from './layout.js';

/** How many leases are shown, and how many damaged events and values of a session. */
const MOST = 100;

const TABS: readonly [path: string, text: string, isForAll: boolean][] = [
  ['/operations', 'Leases and log', true],
  ['/operations/stats', 'Statistics', true],
  ['/operations/doctor', 'Doctor', false],
];

function operationsPage(visit: Visit, title: string, body: Html): Response {
  const { links, path } = visit;
  const tabs = TABS.filter(([, , isForAll]) => isForAll || visit.isUnlimited).map(
    ([to, text]) =>
      html`<a class="button" href="${links.to(to)}" ${to === path && html`aria-current="page"`}>${text}</a>`,
  );
  const main = html`<h1>Operations</h1>
    <nav class="tabs" aria-label="Operations">${tabs}</nav>
    ${body}`;
  return page(visit, { title, section: 'operations', body: main });
}

/** Current leases; for a visitor who may see everything, also the log, its readers, and damaged sessions. */
export async function leasesPage(visit: Visit): Promise<Response> {
  const { reading, scope, links } = visit;
  const leases = await reading.heldLeases(scope, MOST);
  const none = empty('No lease is held', 'No session is being run with a lease. ', codeOf('runTurn'), ' takes one.');
  const list = table(
    leases,
    {
      Session: (key) => sessionLink(links, key),
      'App / user': ownerOf,
      Holder: ({ holder }) => html`<bdi>${holder}</bdi>`,
      '#Token': ({ token }) => number(token),
      '#Held for': ({ since }) => lasting(since),
    },
    none,
  );
  const held = html`<section class="block">
    <h2>Leases held <span class="dim">${leases.length === MOST ? `${MOST} or more` : leases.length}</span></h2>
    ${list}
  </section>`;
  const rest = visit.isUnlimited ? [await logSection(visit), await damageSection(visit)] : [];
  return operationsPage(visit, 'Operations', html`${rest[0]}${held}${rest[1]}`);
}

const sessionLink = (links: Links, key: SessionKey) =>
  html`<a href="${links.ofSession('/session', key)}"><bdi>${key.sessionId}</bdi></a>`;

const ownerOf = ({ appName, userId }: SessionKey) => html`<bdi>${appName}</bdi> / <bdi>${userId}</bdi>`;

async function logSection({ reading, readers }: Visit): Promise<Html> {
  const { position, epoch } = await reading.log.head();
  const ofHost = Object.entries(await readers()).map(([name, cursor]) => {
    const at = typeof cursor === 'number' ? cursor : cursor.position;
    const isOther = typeof cursor !== 'number' && cursor.epoch !== epoch;
    const problem = isOther
      ? chip('from before the log went back', 'bad')
      : at > position && chip('ahead of the log', 'bad');
    const behind = Math.max(position - at, 0);
    return { name, at, behind, signs: problem || upToDate(behind) };
  });
  const projections = (await SessionProjection.list(reading.em)).map(({ name, cursor, behind }) => {
    return { name, at: cursor?.position ?? 0, behind, signs: [chip('projection'), ' ', upToDate(behind)] };
  });
  const list = table([...ofHost, ...projections], {
    Reader: ({ name }) => html`<bdi>${name}</bdi>`,
    '#Position': ({ at }) => number(at),
    '#Behind': ({ behind, signs }) => html`${number(behind)} ${signs}`,
  });
  return html`<section class="block">
    <h2>Event log</h2>
    <dl class="cards">${card('Position of the newest event', number(position))}</dl>
    ${list}
  </section>`;
}

const upToDate = (behind: number): Content => behind === 0 && chip('up to date', 'good');

/** Checks some sessions at a time, since it reads the keys of all their events. */
async function damageSection(visit: Visit): Promise<Html> {
  const { reading, links, params } = visit;
  const { miscounted, checked, last } = await reading.miscounted(params.has('session') ? visit.session : undefined);
  const text = 'Each of these sessions has as many events as its row says. Contents were not read.';
  const list = table(
    miscounted,
    {
      Session: (key) => sessionLink(links, key),
      'App / user': ownerOf,
      '>Repair': (key) => html`<a href="${links.ofSession('/repair', key)}">What repair would do</a>`,
    },
    empty('Nothing is missing', text),
  );
  return html`<section class="block" id="damaged">
    <h2>Damaged sessions <span class="dim">${miscounted.length} of ${counted(checked, 'session')}</span></h2>
    ${list}
    ${
      last &&
      html`<p class="pager">
        <a class="button" href="${links.ofSession('/operations', last)}#damaged" rel="next"
          >Look at the next sessions</a
        >
        <span class="dim">after ${ownerOf(last)}; doctor checks all of them</span>
      </p>`
    }
  </section>`;
}

/** What is stored, in numbers: for each app, or for what the visitor may see. */
export async function statsPage(visit: Visit): Promise<Response> {
  const { reading, scope, links, params } = visit;
  if (params.get('count') !== '1') return operationsPage(visit, 'Statistics', uncounted(visit));
  const maintenance = new SessionMaintenance(reading.em, reading.options);
  if (!visit.isUnlimited) {
    const stats = await maintenance.stats(scope);
    return operationsPage(visit, 'Statistics', cards(stats));
  }
  const apps = await maintenance.stats({ groupBy: 'app' });
  const list = table(apps, {
    App: ({ appName }) => html`<a href="${links.sessions(appName)}"><bdi>${appName}</bdi></a>`,
    '#Sessions': ({ sessions }) => number(sessions),
    '#Users': ({ users }) => number(users),
    '#Events': ({ events }) => number(events),
    '#Median / largest': ({ eventsPerSession: { median, largest } }) => `${number(median)} / ${number(largest)}`,
    '#Size': (stats) => bytes(sizeOf(stats)),
    '#Last update': ({ newestUpdate }) => ago(newestUpdate),
  });
  const sum = (of: (stats: SessionStats) => number) => apps.reduce((total, stats) => total + of(stats), 0);
  const totals = html`<dl class="cards">
    ${card('Sessions', number(sum((stats) => stats.sessions)))}
    ${card('Soft-deleted', number(sum((stats) => stats.deletedSessions)))}
    ${card('Events', number(sum((stats) => stats.events)))} ${card('Size', bytes(sum(sizeOf)))}
  </dl>`;
  const body = apps.length > 0 ? html`${totals}${list}` : empty('Nothing is stored', 'There are no sessions yet.');
  return operationsPage(visit, 'Statistics', body);
}

/** Asks first: somebody who only looks around should not make the database read so much. */
const uncounted = ({ links }: Visit) =>
  empty(
    'Count what is stored',
    'For this the database reads the size of every event, as for the command stats. With millions of events that takes a while. ',
    html`<a class="button" href="${links.to('/operations/stats', { count: 1 })}">Count</a>`,
  );

const sizeOf = ({ eventBytes, stateBytes, artifactBytes, memoryBytes }: SessionStats) =>
  eventBytes + stateBytes + artifactBytes + memoryBytes;

function cards(stats: SessionStats): Html {
  const { sessions, deletedSessions, events, newestUpdate } = stats;
  return html`<dl class="cards">
    ${card('Sessions', number(sessions))} ${card('Soft-deleted', number(deletedSessions))}
    ${card('Events', number(events))} ${card('Size', bytes(sizeOf(stats)))} ${card('Last update', ago(newestUpdate))}
  </dl>`;
}

const STATES: Readonly<Record<Finding['state'], Html>> = {
  ok: chip('ok', 'good'),
  advice: chip('advice', 'warn'),
  wrong: chip('wrong', 'bad'),
};

/** The checks of the command `doctor` that do not read the keys of all events. */
export async function doctorPage(visit: Visit): Promise<Response> {
  visit.checkUnlimited();
  const findings: (Omit<Finding, 'found'> & { found: Content })[] = [];
  for await (const finding of examine(visit.reading.em, { readsAll: false })) findings.push(finding);
  if (!findings.some(({ state }) => state === 'wrong')) findings.push(await sessionsFinding(visit));
  const list = table(
    findings,
    {
      Check: ({ check }) => check,
      State: ({ state }) => STATES[state],
      Found: ({ found, advice }) => html`${found}${advice !== undefined && html`<pre>${advice}</pre>`}`,
    },
    undefined,
    'findings',
  );
  const body = html`${list}
    <p class="dim">This command checks all sessions:</p>
    ${commandOf('doctor')}`;
  return operationsPage(visit, 'Doctor', body);
}

/** Counts the events of as many sessions as `damageSection` does. */
async function sessionsFinding({ reading, links }: Visit) {
  const { miscounted, checked, last } = await reading.miscounted(undefined);
  const these = `${last ? 'the first ' : ''}${counted(checked, 'session')}`;
  const isDamaged = miscounted.length > 0;
  const found = isDamaged
    ? html`${miscounted.length} of ${these} without all their events:
        <a href="${links.to('/operations')}#damaged">see them</a>`
    : `${these} checked: no event is missing (contents were not read)`;
  return { check: 'sessions', state: isDamaged ? ('wrong' as const) : ('ok' as const), found };
}

/** How much of a session is read without asking first: more would take longer than a page may. */
const READ_AT_ONCE = { events: 1_000, bytes: 1_000_000 };

/** What `repair` would remove from a session. */
export async function repairPage(visit: Visit): Promise<Response> {
  const { session: key, links, reading, params } = visit;
  const session = await reading.session(key);
  if (!session) throw notFound();
  const eventCount = session.lastSeq - session.firstSeq + 1;
  const measured = (await reading.sizes([{ ...key, eventCount }]))(key)?.bytes ?? 0;
  const isLarge = eventCount > READ_AT_ONCE.events || measured > READ_AT_ONCE.bytes;
  const body = isLarge && params.get('scan') !== '1' ? unscanned(visit, eventCount, measured) : await repairOf(visit);
  const crumbs = [{ text: key.sessionId, href: links.ofSession('/session', key) }];
  const main = html`<h1>Repair of <bdi>${key.sessionId}</bdi></h1>
    ${body}`;
  return page(visit, { title: 'Repair', appName: key.appName, crumbs, section: 'operations', body: main });
}

const unscanned = ({ links, session }: Visit, eventCount: number, measured: number) =>
  empty(
    'Scan this session for damage',
    `For this the server reads and decodes all of it: ${counted(eventCount, 'event')}, about ${bytes(measured)}. `,
    'With 100,000 events that takes seconds. Nothing is written. ',
    html`<a class="button" href="${links.ofSession('/repair', session, { scan: 1 })}">Scan</a>`,
  );

async function repairOf({ session: key, reading }: Visit): Promise<Html> {
  const maintenance = new SessionMaintenance(reading.em, reading.options);
  try {
    const { damage, events, stateValues } = await maintenance.repair(key, { dryRun: true });
    const rows = [
      ...damage.map(({ from, to, problem }) => ({
        what: html`${from === to ? `Event ${from}` : `Events ${from} to ${to}`}`,
        problem,
      })),
      ...stateValues.map(({ key: name }) => ({ what: html`State <bdi>${name}</bdi>`, problem: 'unreadable' })),
    ];
    const list = table(rows.slice(0, MOST), { What: ({ what }) => what, Problem: ({ problem }) => problem });
    return rows.length === 0
      ? empty('Nothing is damaged', 'All of this session can be read.')
      : html`${list} ${rows.length > MOST && html`<p class="dim">and ${number(rows.length - MOST)} more</p>`}
          <section class="block">
            <p>
              Repair removes ${counted(events.length, 'event')} and ${counted(stateValues.length, 'value')} of the
              state, and writes them into a file. An empty event takes the place of each lost one, so that the others
              keep their numbers:
            </p>
            ${commandOf(repairCommand([key.appName, key.userId, key.sessionId], '--save taken.jsonl'))}
          </section>`;
  } catch (error) {
    if (!(error instanceof LeaseHeldError)) throw error;
    return empty('The session is running', error.message);
  }
}
