import { given } from '../../../../src/model/json.js';
import { rangeIn } from '../../../../src/model/pages.js';
import { partsOf } from '../../../../src/model/turn.js';
import { counted, lasted, number, shortened } from '../operations/words.js';
import { Html, html, type Content } from '../html.js';
import { tokenSum } from '../operations/prices.js';
import { namesField, notFound, type Visit } from '../visit.js';
import { turnsOf, type Block, type Lane, type Turn } from '../waterfall.js';
import { Hues, chip, empty, lasting, page, table, time } from './layout.js';
import { sessionBar } from './session-head.js';

/** How many events are read for a page. */
const MOST_EVENTS = 2_100;

/** How many bytes of markup the turns of a page have at most; then their blocks are not listed. */
const LARGEST = 130_000;

/** How many blocks of a turn say what they are when one points at them. More are drawn as one path. */
const MOST_NAMED = 150;

const [WIDTH, ROW] = [1_000, 20];

/** Where the time of a session went: for each turn a row for each agent, and a block for each model request and tool. */
export async function timePage(visit: Visit): Promise<Response> {
  const { links, reading, session: key } = visit;
  const session = await reading.session(key);
  if (!session || session.deletedAt !== undefined) throw notFound();
  const before = visit.number('before');
  const request = { limit: MOST_EVENTS, ...given({ before }) };
  const { events, firstSeq, lastSeq } = await reading.service.readEvents(key, request);
  const { from, upTo } = rangeIn({ firstSeq, lastSeq }, request);
  const unreadable = upTo - from + 1 - events.length;
  const turns = turnsOf(events, Date.now()).toReversed();
  const hues = new Hues(turns.flatMap(({ lanes }) => lanes.map(({ name }) => agentOf(name))));
  const hrefAfter = (seq: number) => links.ofSession('/session', key, { after: seq });
  let bytes = 0;
  const views: Html[] = [];
  const withBranches = turns.find(({ lanes }) => lanes.length > 1);
  for (const [i, turn] of turns.entries()) {
    const isOpen = (i < 3 && bytes < LARGEST / 2) || turn === withBranches;
    const branches = turn.lanes.length > 1 && branchTable(visit, turn, hues, turn === withBranches && 'branches');
    const view = turnView(turn, hues, { isOpen, room: LARGEST - bytes, hrefAfter, branches });
    bytes += view.bytes;
    if (bytes > LARGEST) break;
    views.push(view);
  }
  const oldest = turns[views.length - 1]?.first.seq ?? from;
  const body = html`${await sessionBar(visit, session, '/time')}
    <form class="turns" action="${links.to('/session')}">
      ${namesField({ app: key.appName, user: key.userId, session: key.sessionId })}
      ${whereTimeWent(visit, turns.slice(0, views.length))}
      <p class="note">
        The newest turn first. A block of a model lasts from its request to the append of its event, a block of a tool
        from there to the append of its answer.
      </p>
      <p class="note">
        <span class="legend model">model</span>
        <span class="legend tool">tool</span> <span class="legend wait">waits</span>
        <span class="legend failed">failed</span>
        ${turns.some(({ lanes }) => lanes.some(({ blocks }) => blocks.some(isUnknown))) && html`<span class="legend unknown">not recorded</span>`}
      </p>
      ${
        unreadable > 0 &&
        html`<p class="note">
          ${counted(unreadable, 'event')} of ${number(from)} to ${number(upTo)} cannot be read, and
          ${unreadable === 1 ? 'is' : 'are'} not in the picture.
          <a href="${links.ofSession('/repair', key)}">See what is damaged</a>
        </p>`
      }
      ${HATCH} ${views}
      ${turns.length === 0 && unreadable === 0 && empty('No events', 'This conversation has not begun.')}
    </form>
    ${
      oldest > firstSeq &&
      html`<p class="pager">
        <a class="button" href="${links.ofSession('/time', key, { before: oldest })}" rel="next">Earlier turns</a>
      </p>`
    }`;
  const crumbs = [{ text: key.userId, href: links.sessions(key.appName, key.userId) }];
  return page(visit, { title: `Time of ${session.title ?? key.sessionId}`, appName: key.appName, crumbs, body });
}

/** A branch ends with the name of its agent, which has the same color in the conversation. */
const agentOf = (lane: string) => lane.split('.').at(-1) ?? lane;

const HATCH = new Html(
  '<svg class="hidden" aria-hidden="true"><defs><pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse"><path class="wait" d="M0 8L8 0" /></pattern></defs></svg>',
);

function turnView(
  turn: Turn,
  hues: Hues,
  {
    isOpen,
    room,
    hrefAfter,
    branches,
  }: { isOpen: boolean; room: number; hrefAfter: (seq: number) => string; branches: Content },
): Html {
  const { first, lanes, start, end } = turn;
  const blocks = lanes.flatMap((lane) => lane.blocks);
  const sum = (kind: Block['kind'], what: string) => {
    const of = blocks.filter((block) => block.kind === kind);
    const ms = lengthIn(of);
    const unknown = of.filter(isUnknown).length;
    const how = unknown < of.length ? `${lasted(ms)}${unknown > 0 ? ' or more' : ''}` : 'for an unknown time';
    return of.length > 0 && html`<span>${what} ${how} <span class="dim">in ${number(of.length)}</span></span>`;
  };
  const failed = blocks.filter(({ hasFailed }) => hasFailed).length;
  const [said] = partsOf(first.event).flatMap(({ text }) => (typeof text === 'string' ? text : []));
  const list = blockList(lanes, hues, { room, hrefAfter });
  return html`<details class="panel turn" ${isOpen && html`open`}>
    <summary>
      <strong><bdi>${shortened(said ?? `from event #${first.seq}`, SHOWN)}</bdi></strong>
      <span class="facts"
        >${time(first.event.timestamp)}
        <span>${lanes.length > 0 ? lasted(end - start) : 'no answer'}</span> ${sum('model', 'models')}
        ${sum('tool', 'tools')} ${sum('wait', 'waits')} ${failed > 0 && chip(`${number(failed)} failed`, 'bad')}</span
      >
    </summary>
    ${branches} ${lanes.length > 0 && [picture(turn, hues), axis(turn), list]}
  </details>`;
}

const lengthIn = (blocks: readonly Block[]) => blocks.reduce((total, { start, end }) => total + end - start, 0);

/** In one line what took the time of all turns: models, tools or people, and the longest request or tool. */
function whereTimeWent({ links, session }: Visit, turns: readonly Turn[]): Content {
  const blocks = turns.flatMap(({ lanes }) => lanes.flatMap((lane) => lane.blocks));
  const all = lengthIn(blocks);
  if (all === 0) return undefined;
  const unknown = blocks.filter(isUnknown).length;
  const shares = KINDS.flatMap(([kind, name]) => {
    const of = blocks.filter((block) => block.kind === kind && !isUnknown(block));
    const percent = (100 * lengthIn(of)) / all;
    return of.length > 0
      ? html`<strong class="legend ${kind}"
            >${name} ${percent > 0 && percent < 1 ? '< 1' : Math.round(percent)} %</strong
          >
          <span class="dim">${lasted(lengthIn(of))}</span>`
      : [];
  });
  const [longest] = blocks.filter(({ kind }) => kind !== 'wait').sort((a, b) => lengthIn([b]) - lengthIn([a]));
  const areParallel = turns.some(({ lanes }) => lanes.length > 1);
  return html`<p class="went">
    ${areParallel && html`<span class="dim">All branches together:</span>`} ${shares}
    ${unknown > 0 && html`<span>${counted(unknown, 'model request')} not recorded</span>`}
    ${
      longest &&
      html`<span
        >longest request or tool:
        <a href="${links.ofSession('/session', session, { at: longest.seq })}#e${longest.seq}"
          >${titleOf(longest)} #${longest.seq}</a
        ></span
      >`
    }
  </p>`;
}

const KINDS: readonly [Block['kind'], string][] = [
  ['model', 'models'],
  ['tool', 'tools'],
  ['wait', 'waits'],
];

/** How many branches have a row, and how many tools are named in one. */
const MOST_BRANCHES = 12;
const MOST_TOOLS = 3;

/** What each branch of a turn did, in a row. @param id of the table's heading. */
function branchTable(
  { links, session }: Visit,
  { lanes, start: turnStart }: Turn,
  hues: Hues,
  id: string | false,
): Html {
  const to = (seq: number, text: Content, kind = 'quiet') =>
    html`<a class="${kind}" href="${links.ofSession('/session', session, { at: seq })}#e${seq}">${text}</a>`;
  const sum = (blocks: readonly Block[]) => {
    const ms = lengthIn(blocks);
    return blocks.length > 0 && `${number(blocks.length)}${ms > 0 ? ` in ${lasted(ms)}` : ''}`;
  };
  const took = ({ blocks }: Lane) => {
    const open = blocks.findLast(({ isOpen }) => isOpen);
    if (open) return html`${open.kind === 'wait' ? 'waits' : 'runs'} ${lasting(open.start)}`;
    const [begin, end] = [Math.min(...blocks.map(({ start }) => start)), Math.max(...blocks.map((each) => each.end))];
    return html`${lasted(end - begin)}
      <span class="id">${lasted(begin - turnStart)} to ${lasted(end - turnStart)}</span>`;
  };
  const toolsOf = ({ blocks }: Lane) => {
    const tools = blocks.filter(({ kind }) => kind !== 'model');
    const names = new Map<string, number>();
    for (const { name } of tools) names.set(name, (names.get(name) ?? 0) + 1);
    const most = [...names].sort(([, one], [, other]) => other - one);
    const named = most.slice(0, MOST_TOOLS).map(([name]) => shortened(name, SHOWN_OF_NAME));
    return html`${sum(tools)}
      <span class="id"><bdi>${named.join(', ')}${most.length > MOST_TOOLS && ', …'}</bdi></span>`;
  };
  const last = ({ blocks, said }: Lane) => {
    const end = blocks.at(-1);
    if (said) return to(said.seq, html`<bdi>${shortened(said.text, SHOWN)}</bdi>`);
    return end && to(end.seq, html`<bdi>${titleOf(end)}</bdi> #${end.seq}`);
  };
  return html`<h3 ${id !== false && html`id="${id}"`}>What each agent or branch did</h3>
    ${table(
      lanes.slice(0, MOST_BRANCHES),
      {
        Branch: ({ name }) =>
          html`<span class="${hues.of(agentOf(name))}"><bdi>${shortened(name, SHOWN_OF_NAME)}</bdi></span>`,
        '#Took': took,
        '#Models': ({ blocks }) => sum(blocks.filter(({ kind }) => kind === 'model')),
        Tools: toolsOf,
        '#Failed': ({ blocks }) => {
          const failed = blocks.filter(({ hasFailed }) => hasFailed);
          const [first] = failed;
          return first ? to(first.seq, number(failed.length), 'chip bad') : '0';
        },
        '#Tokens': ({ tokens }) =>
          tokenSum(tokens) > 0 ? number(tokenSum(tokens)) : html`<span class="dim">not recorded</span>`,
        'Last words': last,
      },
      undefined,
      'dense',
    )}
    ${lanes.length > MOST_BRANCHES && html`<p class="dim">and ${number(lanes.length - MOST_BRANCHES)} more, below</p>`}`;
}

/** How many characters are shown of a message, and of the name of an agent or a tool. */
const SHOWN = 100;
const SHOWN_OF_NAME = 40;
/** The markup around the pieces of a line, in bytes. */
const BYTES_OF_LINE = 20;

const axis = ({ start, end, shownUntil }: Turn) =>
  html`<p class="axis">
    ${[0, 0.25, 0.5, 0.75, 1].map((part) => html`<span>${lasted((shownUntil - start) * part)}${part === 1 && shownUntil < end && ' …'}</span>`)}
  </p>`;

/** The lanes, one below the other on one axis. Blocks of a lane that overlap have a row each. */
function picture({ lanes, start, shownUntil }: Turn, hues: Hues): Html {
  const scale = WIDTH / Math.max(1, shownUntil - start);
  const isLarge = lanes.reduce((count, { blocks }) => count + blocks.length, 0) > MOST_NAMED;
  const rows = lanes.map(({ name, blocks }) => {
    const ends: number[] = [];
    const shapes = blocks.map((block) => {
      const x = (block.start - start) * scale;
      const width = Math.max(1, (Math.min(block.end, shownUntil) - block.start) * scale);
      const free = ends.findIndex((each) => each <= block.start);
      const row = free < 0 ? Math.min(ends.length, MOST_ROWS - 1) : free;
      ends[row] = block.end;
      return { block, x: x.toFixed(1), y: row * ROW + 3, width: width.toFixed(1) };
    });
    const height = Math.max(1, ends.length) * ROW;
    const drawn = isLarge
      ? (['unknown', 'model', 'tool', 'wait', 'failed'] as const).map((kind) => {
          const of = shapes.filter(({ block }) => kindOf(block) === kind);
          const path = of.map(({ x, y, width }) => `M${x} ${y}h${width}v${ROW - 6}h-${width}z`).join('');
          return of.length > 0 && html`<path class="${kind}" d="${path}" />`;
        })
      : shapes.map(
          ({ block, x, y, width }) =>
            html`<rect class="${kindOf(block)}" x="${x}" y="${y}" width="${width}" height="${ROW - 6}">
              <title>${titleOf(block)}</title>
            </rect>`,
        );
    return html`<div class="lane">
      <span class="${hues.of(agentOf(name))}"><bdi>${shortened(name, SHOWN_OF_NAME)}</bdi></span>
      <svg
        viewBox="0 0 ${WIDTH} ${height}"
        height="${height}"
        preserveAspectRatio="none"
        role="img"
        aria-label="${shortened(name, SHOWN_OF_NAME)}: ${counted(blocks.length, 'block')}, listed below"
      >
        ${drawn}
      </svg>
    </div>`;
  });
  return html`<div class="lanes">${rows}</div>`;
}

/** How many rows a lane has at most. */
const MOST_ROWS = 8;

/** Whether nobody knows how long it took: a model takes some time. Its event may have come without the time of its append. */
const isUnknown = ({ kind, start, end }: Block) => kind === 'model' && start === end;

const lengthOf = (block: Block) => (isUnknown(block) ? 'of unknown length' : lasted(block.end - block.start));

const kindOf = (block: Block) => (block.hasFailed ? 'failed' : isUnknown(block) ? 'unknown' : block.kind);

const titleOf = (block: Block) =>
  `${block.kind === 'model' ? 'model of ' : ''}${shortened(block.name, SHOWN_OF_NAME)} ${lengthOf(block)}${block.hasFailed ? ', failed' : ''}${block.isOpen ? ', no answer yet' : ''}`;

/** The blocks as text, in brief markup: a session may have thousands. */
function blockList(
  lanes: readonly Lane[],
  hues: Hues,
  { room, hrefAfter }: { room: number; hrefAfter: (seq: number) => string },
): Content {
  const blocks = lanes.flatMap(({ name, blocks: of }) => of.map((block) => ({ lane: name, block })));
  blocks.sort((one, other) => one.block.seq - other.block.seq);
  // A tool's call stands in the line of the event that has made it.
  const lines: { of: number; lane: string; pieces: Html[] }[] = [];
  let [length, left] = [0, blocks.length];
  for (const { lane, block } of blocks) {
    const { kind, seq, name, answer, hasFailed, isOpen } = block;
    const mark = isOpen ? '…' : hasFailed ? '✗' : '✓';
    const last = lines.at(-1);
    const took = isUnknown(block) ? '' : ` ${lengthOf(block)}`;
    const line = kind !== 'model' && last?.of === seq ? last : undefined;
    const piece = line
      ? html`, ${shortened(name, SHOWN_OF_NAME)} ${mark}${took}${answer !== undefined && ` #${answer}`}`
      : html`<button name="at" value=${seq}>#${seq}</button> ${shortened(name, SHOWN_OF_NAME)}${took}`;
    length += piece.bytes + BYTES_OF_LINE;
    if (length > room / 2) break;
    if (line) line.pieces.push(piece);
    else lines.push({ of: seq, lane, pieces: [piece] });
    left--;
  }
  return html`<details class="blocks">
    <summary>${left > 0 && `${number(blocks.length - left)} of `}${counted(blocks.length, 'block')} as a list</summary>
    <ol>
      ${lines.map(({ lane, pieces }) => html`<li class="${hues.of(agentOf(lane))}">${pieces}</li>`)}
    </ol>
    ${left > 0 && html`<p><a href="${hrefAfter((blocks.at(-left)?.block.seq ?? 1) - 1)}">The other ${number(left)} in the conversation</a></p>`}
  </details>`;
}
