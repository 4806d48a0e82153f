import type { SessionKey } from '../../../../src/index.js';
import { recordOf } from '../../../../src/model/json.js';
import { beginsTurn, partsOf } from '../../../../src/model/turn.js';
import { counted, lasted, number, shortened, textOrJson } from '../operations/words.js';
import { html, type Content, type Html } from '../html.js';
import type { Links } from '../links.js';
import { tokenSum } from '../operations/prices.js';
import { reasonIn } from '../recent.js';
import { lengthOfTurn, parallelMs } from '../shares.js';
import type { Visit } from '../visit.js';
import { isUnknown, lengthIn, type Block, type Lane, type Turn } from '../waterfall.js';
import { inLine } from './event-view.js';
import { chip, lasting, type Hues } from './layout.js';

/** After how many characters the text of a message, a name, or the response of a tool is cut. */
const SHOWN = 100;
export const SHOWN_OF_NAME = 40;
const SHOWN_OF_RESULT = 60;

/** A branch ends with the name of its agent, which has the same color in the conversation. */
export const agentOf = (lane: string): string => lane.split('.').at(-1) ?? lane;

/** What the user said at the beginning of a turn. */
export function saidIn({ first: { seq, event } }: Turn): string {
  const said = beginsTurn(event) ? partsOf(event).find(({ text }) => typeof text === 'string') : undefined;
  return shortened(said ? textOrJson(said['text']) : `from event #${seq}`, SHOWN);
}

/** The events of a branch from the beginning of a turn on. */
export const branchHref = (links: Links, session: SessionKey, { first }: Turn, { name }: Lane): string =>
  links.ofSession('/session', session, { branch: name, after: first.seq - 1 });

/** Which branches worked in a turn, and whether they did at the same time. */
export function branchesText(turn: Turn): string {
  const { lanes } = turn;
  const agents = lanes.filter(({ isBranch }) => !isBranch);
  const branches = lanes.length - agents.length;
  const [agent] = agents;
  const who = [
    agent && (agents.length === 1 ? shortened(agent.name, SHOWN_OF_NAME) : counted(agents.length, 'agent')),
    branches > 0 && counted(branches, 'branch', 'branches'),
  ];
  const ms = parallelMs(turn);
  const together = lanes.length > 2 ? 'and two or more at once' : 'at the same time';
  return `${who.filter(Boolean).join(' and ')} worked ${ms > 0 ? `${together} for ${lasted(ms)} of ${lasted(lengthOfTurn(turn))}` : 'one after the other'}`;
}

/** What each branch of a turn did, side by side. @param most how many have a card, and how many calls and failures one shows. */
export function branchCards(
  { links, session }: Visit,
  turn: Turn,
  hues: Hues,
  most: { branches: number; calls: number } = { branches: 12, calls: 4 },
): Html {
  const { lanes, start: turnStart } = turn;
  const to = (seq: number, text: Content, kind = 'quiet') =>
    html`<a class="${kind}" href="${links.ofSession('/session', session, { at: seq })}#e${seq}">${text}</a>`;
  const sum = ({ blocks }: Lane, kind: Block['kind'], what: string) => {
    const of = blocks.filter((block) => block.kind === kind);
    const ms = lengthIn(of);
    return of.length > 0 && html`<span>${counted(of.length, what)}${ms > 0 && ` ${lasted(ms)}`}</span>`;
  };
  const took = ({ blocks }: Lane) => {
    const open = blocks.findLast(({ isOpen, isLost }) => isOpen && !isLost);
    if (open) return html`${open.kind === 'wait' ? 'waits' : 'runs'} ${lasting(open.start)}`;
    const [begin, end] = [Math.min(...blocks.map(({ start }) => start)), Math.max(...blocks.map((each) => each.end))];
    if (end === begin) return 'its time was not recorded';
    return html`<strong>${lasted(end - begin)}</strong>, from ${lasted(begin - turnStart)} to ${lasted(end - turnStart)}`;
  };
  const line = (block: Block) => {
    const { kind, seq, name, args, response, hasFailed, isOpen } = block;
    const result = hasFailed ? reasonIn(recordOf(response)) : textOrJson(response);
    return html`<li>
      ${to(seq, html`<code><bdi>${kind === 'model' ? 'model' : shortened(name, SHOWN_OF_NAME)}</bdi></code>`)}
      ${inLine(args, SHOWN_OF_NAME)} ${markOf(block)}
      ${!isOpen && response !== undefined && html`<span class="args"><bdi>${shortened(result, SHOWN_OF_RESULT)}</bdi></span>`}
    </li>`;
  };
  const card = (lane: Lane) => {
    const { name, blocks, tokens, said } = lane;
    const calls = blocks.filter(({ kind, hasFailed }) => kind !== 'model' || hasFailed);
    const failed = calls.filter(({ hasFailed }) => hasFailed);
    const [firstFailed] = failed;
    const lines = someOf(calls, failed, most.calls);
    const href = branchHref(links, session, turn, lane);
    return html`<section class="side ${hues.of(agentOf(name))}">
      <h4>
        <a href="${href}"><bdi>${shortened(name, SHOWN_OF_NAME)}</bdi></a>
      </h4>
      <p class="facts">
        <span>${took(lane)}</span> ${sum(lane, 'model', 'model call')} ${sum(lane, 'tool', 'tool call')}
        ${sum(lane, 'wait', 'wait')}
        <span>${tokenSum(tokens) > 0 ? `${number(tokenSum(tokens))} tokens` : 'tokens not recorded'}</span>
        ${firstFailed && to(firstFailed.seq, `${number(failed.length)} failed`, 'chip bad')}
      </p>
      <ul>
        ${lines.map(line)}
        ${lines.length < calls.length && html`<li><a href="${href}">${number(calls.length - lines.length)} more</a></li>`}
      </ul>
      ${said && html`<p>${to(said.seq, html`“<bdi>${shortened(said.text, SHOWN)}</bdi>”`)}</p>`}
    </section>`;
  };
  const more = lanes.length - most.branches;
  return html`<div class="sides">${lanes.slice(0, most.branches).map(card)}</div>
    ${more > 0 && html`<p class="dim">and <a href="${links.ofSession('/time', session)}#t${turn.first.seq}">${number(more)} more</a></p>`}`;
}

/** Whether a step has succeeded, and how long it took. */
function markOf(block: Block): Html {
  const { kind, start, end, hasFailed, isOpen, isLost } = block;
  const length = isUnknown(block) ? '' : ` ${lasted(end - start)}`;
  if (isLost) return chip('never answered');
  if (isOpen) return chip(kind === 'wait' ? `waits${length}` : 'no answer yet', 'warn');
  return chip(`${hasFailed ? '✗' : '✓'}${length}`, hasFailed ? 'bad' : 'good');
}

/** @returns a few calls that say what a branch did: failures, the first ones and the last one, in their order. */
function someOf(calls: readonly Block[], failed: readonly Block[], most: number): Block[] {
  if (calls.length <= most + 1) return [...calls];
  const some = new Set([...failed.slice(0, most / 2), ...calls.slice(-1), ...calls]);
  return [...some].slice(0, most).sort((one, other) => one.start - other.start);
}
