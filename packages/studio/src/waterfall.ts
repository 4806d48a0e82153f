import { isFailedResponse } from '../../../src/conversation/failed-response.js';
import { isOpen } from '../../../src/conversation/calls.js';
import type { EventPage } from '../../../src/index.js';
import { recordOf } from '../../../src/model/json.js';
import { beginsTurn, partsOf } from '../../../src/model/turn.js';
import { isLost, laneName, stampOf } from './operations/durations.js';
import { NO_TOKENS, addTokens, tokensOf, type TokenCounts } from './operations/tokens.js';
import { Pairs, isModels } from './pages/event-view.js';

type NumberedEvent = EventPage['events'][number];

/** A request to a model, a tool that runs, or a call that waits for a person. Times are in ms since 1970. */
export interface Block {
  kind: 'model' | 'tool' | 'wait';
  /** The number of the event that made it. */
  seq: number;
  /** The number of the event that answers it. */
  answer?: number | undefined;
  /** The agent, or the tool. */
  name: string;
  start: number;
  end: number;
  hasFailed: boolean;
  /** Whether it has not ended. */
  isOpen: boolean;
  /** Whether it is a tool that has not answered for so long that it never will. It has no length: nobody knows when it ended. */
  isLost: boolean;
  /** The arguments of a call. */
  args?: unknown;
  /** What answered a call, or why a model failed. */
  response?: unknown;
}

/** Whether nobody knows how long it took: a model takes some time. Its event may have come without the time of its append. */
export const isUnknown = ({ kind, start, end }: Block): boolean => kind === 'model' && start === end;

export const lengthIn = (blocks: readonly Block[]): number =>
  blocks.reduce((total, { start, end }) => total + end - start, 0);

/** What an agent, or a branch, did in a turn. */
export interface Lane {
  name: string;
  isBranch: boolean;
  blocks: Block[];
  tokens: TokenCounts;
  /** The last text that its model said, and the number of that event. */
  said: { seq: number; text: string } | undefined;
}

/** What follows a message of the user. */
export interface Turn {
  first: NumberedEvent;
  lanes: Lane[];
  start: number;
  end: number;
  /** Where its picture ends: before `end` if something waits for much longer than all else took. */
  shownUntil: number;
}

/**
 * Where the time of events went. ADK stamps a model's event when its request begins, and the append follows when the model has
 * answered: model = append − stamp, tool = append of the answer − append of the call.
 *
 * @param now until when calls last that have no answer.
 * @param isRunning whether somebody runs the session, so that its newest turn has not ended.
 */
export function turnsOf(events: readonly NumberedEvent[], now: number, isRunning = false): Turn[] {
  const pairs = new Pairs();
  pairs.add(events);
  const turns: Turn[] = [];
  for (const numbered of events) {
    const { seq, event } = numbered;
    let turn = turns.at(-1);
    if (!turn || beginsTurn(event)) {
      const timestamp = stampOf(event);
      turn = { first: numbered, lanes: [], start: timestamp, end: timestamp, shownUntil: timestamp };
      turns.push(turn);
    }
    for (const block of blocksOf(numbered, pairs, now)) {
      // A response may come in a later turn: a wait reaches into it.
      laneOf(turn, event).blocks.push(block);
      turn.start = Math.min(turn.start, block.start);
      turn.end = Math.max(turn.end, block.end);
    }
    const lane = turn.lanes.find(({ name }) => name === laneName(event));
    if (lane) {
      addTokens(lane.tokens, tokensOf(event) ?? NO_TOKENS);
      const text = partsOf(event).findLast((part) => typeof part['text'] === 'string' && part['thought'] !== true)?.[
        'text'
      ];
      if (typeof text === 'string' && text.trim() !== '') lane.said = { seq, text };
    }
    turn.end = Math.max(turn.end, pairs.endOf(seq) ?? 0);
  }
  const newest = turns.at(-1);
  if (newest && isRunning) newest.end = Math.max(newest.end, now);
  for (const turn of turns) turn.shownUntil = shownUntil(turn);
  return turns;
}

function shownUntil({ lanes, start, end }: Turn): number {
  const shown = lanes.flatMap(({ blocks }) => blocks).filter(({ kind }) => kind !== 'wait');
  const last = shown.reduce((latest, block) => Math.max(latest, block.end), start);
  return last > start ? Math.min(end, last + (last - start) / 4) : end;
}

function laneOf({ lanes }: Turn, event: object): Lane {
  const name = laneName(event);
  const known = lanes.find((lane) => lane.name === name);
  if (known) return known;
  const isBranch = name === recordOf(event)['branch'];
  const lane: Lane = { name, isBranch, blocks: [], tokens: { ...NO_TOKENS }, said: undefined };
  lanes.push(lane);
  return lane;
}

const nameOf = (name: unknown) => (typeof name === 'string' ? name : '');

function blocksOf({ seq, event }: NumberedEvent, pairs: Pairs, now: number): Block[] {
  const { author, errorCode, errorMessage } = recordOf(event);
  const parts = partsOf(event);
  if (!isModels(recordOf(event))) return [];
  const start = stampOf(event);
  const end = pairs.endOf(seq) ?? start;
  const hasFailed = Boolean(errorCode);
  const response = hasFailed ? { error: errorMessage ?? errorCode } : undefined;
  const model: Block = {
    kind: 'model',
    seq,
    name: nameOf(author),
    start,
    end,
    hasFailed,
    isOpen: false,
    isLost: false,
    response,
  };
  const calls = parts.filter((part) => part['functionCall'] !== undefined);
  const tools = calls.map(({ functionCall }, nth): Block => {
    const call = pairs.call(seq, nth);
    const answer = pairs.responsesTo(call).at(-1);
    const open = call === undefined || (call.isLongRunning ? isOpen(call) : answer === undefined);
    const kind = call?.isLongRunning === true ? 'wait' : 'tool';
    const isForever = kind === 'tool' && open && isLost(end, now);
    const until = isForever ? end : open ? now : answer ? (pairs.endOf(answer.seq) ?? end) : end;
    return {
      kind,
      seq,
      answer: open ? undefined : answer?.seq,
      name: nameOf(recordOf(functionCall)['name']),
      start: end,
      end: Math.max(end, until),
      hasFailed: !open && isFailedResponse(answer?.response),
      isOpen: open,
      isLost: isForever,
      args: recordOf(functionCall)['args'],
      response: answer?.response,
    };
  });
  return [model, ...tools];
}
