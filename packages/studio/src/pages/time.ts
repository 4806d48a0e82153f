import { withoutUndefined } from '../../../../src/model/json.js';
import { rangeIn } from '../../../../src/model/pages.js';
import { counted, lasted, number, shortened } from '../operations/words.js';
import { Html, html, type Content } from '../html.js';
import { lengthOfTurn, percentsOf, sharesOf, type Share } from '../shares.js';
import { namesField, notFound, type Visit } from '../visit.js';
import { isUnknown, lengthIn, turnsOf, type Block, type Lane, type Turn } from '../waterfall.js';
import { SHOWN_OF_NAME, agentOf, branchCards, branchHref, branchesText, saidIn } from './branches.js';
import { Hues, chip, empty, lasting, page, time } from './layout.js';
import { sessionBar } from './session-head.js';

/** How many events are read for a page. */
const MOST_EVENTS = 2_100;

/** How many bytes of markup the turns of a page have at most; then their blocks are not listed. */
const LARGEST = 130_000;

/** How many bytes of markup the list of a turn's blocks has at most. The conversation has the others. */
const LARGEST_LIST = 25_000;

/** How many blocks of a turn say what they are when one points at them. More are drawn as one path. */
const MOST_NAMED = 150;

const [WIDTH, ROW] = [1_000, 20];

/** Where the time of a session went: for each turn a row for each agent, and a block for each model request and tool. */
export async function timePage(visit: Visit): Promise<Response> {
  const { links, reading, session: key } = visit;
  const session = await reading.session(key);
  if (!session || session.deletedAt !== undefined) throw notFound();
  const before = visit.number('before');
  const request = { limit: MOST_EVENTS, ...withoutUndefined({ before }) };
  const { events, firstSeq, lastSeq } = await reading.service.readEvents(key, request);
  const { from, upTo } = rangeIn({ firstSeq, lastSeq }, request);
  const unreadable = upTo - from + 1 - events.length;
  const busy = await reading.busy(key);
  const turns = turnsOf(events, Date.now(), before === undefined && busy.lease?.isHeld === true).toReversed();
  const hues = new Hues(turns.flatMap(({ lanes }) => lanes.map(({ name }) => agentOf(name))));
  const hrefAfter = (seq: number) => links.ofSession('/session', key, { after: seq });
  const longest = longestOf(turns);
  let bytes = 0;
  const views: Html[] = [];
  const withBranches = turns.find(({ lanes }) => lanes.length > 1);
  for (const [i, turn] of turns.entries()) {
    const isOpen = (i < 3 && bytes < LARGEST / 2) || turn === withBranches || turn === longest;
    const branches =
      turn.lanes.length > 1 &&
      html`<h3 ${turn === withBranches && html`id="branches"`}>${branchesText(turn)}</h3>
        ${branchCards(visit, turn, hues)}`;
    const shares = longest && html`<span class="shares">${sharesLine([turn], sharesOf([turn]))}</span>`;
    const view = turnView(visit, turn, hues, { isOpen, room: LARGEST - bytes, hrefAfter, branches, shares });
    bytes += view.bytes;
    if (bytes > LARGEST) break;
    views.push(view);
  }
  const oldest = turns[views.length - 1]?.first.seq ?? from;
  const hasUnknown = turns.some(({ lanes }) =>
    lanes.some(({ blocks }) => blocks.some((block) => kindOf(block) === 'unknown')),
  );
  const body = html`${await sessionBar(visit, session, '/time', { busy })}
    <form class="turns" action="${links.to('/session')}">
      ${namesField({ app: key.appName, user: key.userId, session: key.sessionId })}
      ${whereTimeWent(visit, turns, { longest, isWhole: from <= firstSeq && before === undefined, shown: views.length })}
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
      ${
        turns.length > 0 &&
        html`<p class="note">
          <span class="legend model">model</span>
          <span class="legend tool">tool</span> <span class="legend wait">waits</span>
          <span class="legend failed">failed</span>
          ${hasUnknown && html`<span class="legend unknown">not recorded</span>`} A model lasts from its request to the
          append of its event, a tool from there to the append of its answer. What runs at the same time shares that
          time.
        </p>`
      }
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

const HATCH = new Html(
  '<svg class="hidden" aria-hidden="true"><defs><pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse"><path class="wait" d="M0 8L8 0" /></pattern></defs></svg>',
);

function turnView(
  { links, session }: Visit,
  turn: Turn,
  hues: Hues,
  {
    isOpen,
    room,
    hrefAfter,
    branches,
    shares,
  }: { isOpen: boolean; room: number; hrefAfter: (seq: number) => string; branches: Content; shares: Content },
): Html {
  const { first, lanes } = turn;
  const failed = lanes.flatMap(({ blocks }) => blocks.filter(({ hasFailed }) => hasFailed)).length;
  const list = blockList(lanes, hues, { room, hrefAfter });
  const hrefOf = (lane: Lane) => branchHref(links, session, turn, lane);
  return html`<details class="panel turn" id="t${first.seq}" ${isOpen && html`open`}>
    <summary>
      <strong><bdi>${saidIn(turn)}</bdi></strong>
      <span class="facts"
        >${time(first.event.timestamp)}
        <span>${hasWorked(turn) ? lasted(lengthOfTurn(turn)) : 'no answer'}</span> ${hasWorked(turn) && shares}
        ${failed > 0 && chip(`${number(failed)} failed`, 'bad')}</span
      >
    </summary>
    ${branches} ${lanes.length > 0 && [picture(turn, hues, hrefOf), axis(turn), list]}
  </details>`;
}

/** Whether an agent has done something in a turn, or is at it. */
const hasWorked = (turn: Turn) => turn.lanes.length > 0 || lengthOfTurn(turn) > 0;

/** @returns the turn that lasted longest, if there are several. */
function longestOf(turns: readonly Turn[]): Turn | undefined {
  const worked = turns.filter(hasWorked);
  return worked.length > 1 ? worked.toSorted((one, other) => lengthOfTurn(other) - lengthOfTurn(one))[0] : undefined;
}

/** How many shares are named. */
const MOST_SHARES = 5;

/** The shares of the time of turns, the largest first, and in how many requests or calls. */
function sharesLine(turns: readonly Turn[], shares: readonly Share[]): Content {
  const percents = percentsOf(shares.map(({ ms }) => ms));
  const unknown = turns.flatMap(({ lanes }) => lanes.flatMap(({ blocks }) => blocks.filter(isUnknown))).length;
  const named = shares.slice(0, MOST_SHARES).map(
    (share, i) =>
      html`<span class="legend ${share.kind}"
        ><strong><bdi>${nameOf(share)}</bdi> ${percentText(percents[i], share)}</strong>
        <span class="dim">${lasted(share.ms)}${share.count > 1 && ` in ${number(share.count)}`}</span></span
      >`,
  );
  const rest = shares.slice(MOST_SHARES);
  const others =
    rest.length > 0 &&
    html`<span class="legend tool"
      ><strong
        >${number(rest.length)} more ${percents.slice(MOST_SHARES).reduce((sum, each) => sum + each, 0)} %</strong
      >
      <span class="dim">${lasted(rest.reduce((sum, { ms }) => sum + ms, 0))}</span></span
    >`;
  return [
    named,
    others,
    unknown > 0 &&
      html`<span class="dim">${counted(unknown, 'model request')} not recorded, in the time between steps</span>`,
  ];
}

const percentText = (percent = 0, { ms }: Share) => (percent === 0 && ms > 0 ? '< 1 %' : `${percent} %`);

const nameOf = ({ kind, name }: Share) => (kind === 'tool' ? shortened(name, SHOWN_OF_NAME) : SHARES[kind]);

const SHARES: Readonly<Record<Exclude<Share['kind'], 'tool'>, string>> = {
  model: 'models',
  wait: 'waiting for a person',
  between: 'between steps',
};

/** In one sentence what took the time of all turns, then all shares, the longest turn and step, and what has not ended. */
function whereTimeWent(
  visit: Visit,
  turns: readonly Turn[],
  { longest, isWhole, shown }: { longest: Turn | undefined; isWhole: boolean; shown: number },
): Content {
  const shares = sharesOf(turns);
  const [most] = shares;
  const worked = turns.filter(hasWorked);
  const all = worked.reduce((sum, turn) => sum + lengthOfTurn(turn), 0);
  if (!most || all === 0) return undefined;
  const [percent] = percentsOf(shares.map(({ ms }) => ms));
  const { links, session } = visit;
  const hrefOf = (turn: Turn) => {
    const place = turns.indexOf(turn);
    const later = turns[place - 1]?.first.seq;
    return `${place < shown ? '' : links.ofSession('/time', session, { before: later })}#t${turn.first.seq}`;
  };
  // A wait of days hides what the agent did meanwhile.
  const rest = most.kind === 'wait' ? shares.slice(1) : [];
  const [restPercent] = percentsOf(rest.map(({ ms }) => ms));
  const [second] = rest;
  const ofTurns = worked.length > 1 ? ` in ${isWhole ? '' : 'these '}${counted(worked.length, 'turn')}` : '';
  return html`<section class="panel went">
    <p class="most">
      <strong>${percentText(percent, most)} of the time went ${wentTo(most)}</strong>: ${lasted(most.ms)} of
      ${lasted(all)}${ofTurns}.
      ${second && html`Of the other ${lasted(all - most.ms)}, ${percentText(restPercent, second)} went ${wentTo(second)}.`}
      ${
        longest &&
        html`The longest turn took ${lasted(lengthOfTurn(longest))}, ${Math.round((100 * lengthOfTurn(longest)) / all)}
          %: <a href="${hrefOf(longest)}"><bdi>${saidIn(longest)}</bdi></a>`
      }
    </p>
    <p class="shares">${sharesLine(turns, shares)}</p>
    ${stepsLine(visit, turns)}
  </section>`;
}

const wentTo = (share: Share) =>
  share.kind === 'between'
    ? 'between steps, when no tool ran and no model that has answered'
    : html`to <bdi>${nameOf(share)}</bdi>`;

/** The longest step, and what has not ended: waits are no steps. */
function stepsLine({ links, session }: Visit, turns: readonly Turn[]): Content {
  const blocks = turns.flatMap(({ lanes }) => lanes.flatMap((lane) => lane.blocks));
  const to = (block: Block, text: string) =>
    html`<a href="${links.ofSession('/session', session, { at: block.seq })}#e${block.seq}"><bdi>${text}</bdi></a>`;
  const steps = blocks.filter(({ kind, start, end }) => kind !== 'wait' && end > start);
  const [longest] = steps.toSorted((one, other) => lengthIn([other]) - lengthIn([one]));
  const isAsLong = (block: Block) => longest && lasted(lengthIn([block])) === lasted(lengthIn([longest]));
  const ties = longest?.isOpen ? 0 : steps.filter((block) => !block.isOpen && isAsLong(block)).length - 1;
  const open = blocks.filter((block) => block.isOpen && block !== longest);
  const notEnded = (of: readonly Block[], what: string) => {
    const [oldest] = of.toSorted((one, other) => one.start - other.start);
    return (
      oldest &&
      html`<span
        >${what} ${to(oldest, `${shortened(oldest.name, SHOWN_OF_NAME)} #${oldest.seq}`)}
        ${lasting(oldest.start)}${of.length > 1 && `, and ${number(of.length - 1)} more`}</span
      >`
    );
  };
  return html`<p class="facts">
    ${
      longest &&
      html`<span
        >Longest step${blocks.some(({ kind }) => kind === 'wait') && ', waits not counted'}:
        ${to(longest, `${stepName(longest)} #${longest.seq}`)}
        ${longest.isOpen ? html`${lasting(longest.start)}, still running` : lasted(lengthIn([longest]))}${ties > 0 && `; ${number(ties)} more took as long`}</span
      >`
    }
    ${notEnded(
      open.filter(({ kind }) => kind === 'wait'),
      'Still waits:',
    )}
    ${notEnded(
      open.filter(({ kind, isLost }) => kind === 'tool' && !isLost),
      longest?.isOpen ? 'Still runs, too:' : 'Still runs:',
    )}
    ${notEnded(
      open.filter(({ isLost }) => isLost),
      'Never answered, not counted:',
    )}
  </p>`;
}

/** The markup around the pieces of a line, in bytes. */
const BYTES_OF_LINE = 20;

const axis = ({ start, end, shownUntil }: Turn) =>
  html`<p class="axis">
    ${[0, 0.25, 0.5, 0.75, 1].map((part) => html`<span>${lasted((shownUntil - start) * part)}${part === 1 && shownUntil < end && ' …'}</span>`)}
  </p>`;

/** The lanes, one below the other on one axis. Blocks of a lane that overlap have a row each. */
function picture({ lanes, start, shownUntil }: Turn, hues: Hues, hrefOf: (lane: Lane) => string): Html {
  const scale = WIDTH / Math.max(1, shownUntil - start);
  const isLarge = lanes.reduce((count, { blocks }) => count + blocks.length, 0) > MOST_NAMED;
  const rows = lanes.map((lane) => {
    const { name, blocks } = lane;
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
      <a class="${hues.of(agentOf(name))}" href="${hrefOf(lane)}"><bdi>${shortened(name, SHOWN_OF_NAME)}</bdi></a>
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

const lengthOf = (block: Block) =>
  block.isLost ? 'never answered' : isUnknown(block) ? 'of unknown length' : lasted(block.end - block.start);

const kindOf = (block: Block) =>
  block.hasFailed ? 'failed' : block.isLost || isUnknown(block) ? 'unknown' : block.kind;

const stepName = ({ kind, name }: Block) => `${kind === 'model' ? 'model of ' : ''}${shortened(name, SHOWN_OF_NAME)}`;

const titleOf = (block: Block) =>
  `${stepName(block)} ${lengthOf(block)}${block.hasFailed ? ', failed' : ''}${block.isOpen && !block.isLost ? ', no answer yet' : ''}`;

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
    if (length > Math.min(room / 2, LARGEST_LIST)) break;
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
