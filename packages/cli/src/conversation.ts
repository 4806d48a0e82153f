import type { Event } from '@google/adk';
import type { LogChange } from '../../../src/index.js';
import { isFailedResponse } from '../../../src/conversation/failed-response.js';
import { isRecord, recordOf } from '../../../src/model/json.js';
import { partsOf } from '../../../src/model/turn.js';
import {
  json,
  printable,
  printableLines,
  shortened,
  shownTime,
  textOrJson,
} from '../../studio/src/operations/words.js';
import type { Terminal } from './terminal.js';

/** A stored event may hold anything, whatever ADK's types promise. */
type Loose = Readonly<Record<string, unknown>>;

const shown = (value: unknown): string => printable(textOrJson(value));

/** How much of an answer is shown, in characters. */
const MOST_ANSWER = 500;

/**
 * An event as a person reads it: who said or called what, and what state it wrote.
 *
 * @param isFull whether long answers of tools are not cut.
 */
export function eventLines(terminal: Terminal, seq: number, event: Event, isFull = false): string[] {
  const said = partsOf(event).flatMap((part) => partLines(part, terminal, isFull ? Infinity : MOST_ANSWER));
  const { author, timestamp, errorCode, errorMessage, interrupted, actions }: Loose = { ...event };
  const errors = [errorCode, errorMessage].filter(Boolean).map(shown);
  if (errors.length > 0) said.push(terminal.red(`error ${errors.join(': ')}`));
  if (interrupted) said.push(terminal.red('interrupted'));
  const { transferToAgent, stateDelta } = recordOf(actions);
  if (transferToAgent) said.push(terminal.dim(`transfers to ${shown(transferToAgent)}`));
  const state = Object.entries(recordOf(stateDelta)).map(([key, value]) => `${printable(key)} = ${json(value)}`);
  const lines = [...said, ...state.map((text) => terminal.cyan(text))];
  const time = shownTime(typeof timestamp === 'number' ? timestamp : undefined);
  const head = `${String(seq).padStart(5)}  ${terminal.dim(time)}  ${terminal.bold(shown(author ?? ''))}`;
  return [head, ...lines.map((line) => `       ${line}`)];
}

function partLines(
  { text, thought, functionCall, functionResponse, inlineData, fileData, ...other }: Loose,
  terminal: Terminal,
  most: number,
): string[] {
  if (isRecord(functionCall)) return [`→ ${shown(functionCall['name'] ?? '')}(${json(functionCall['args'] ?? {})})`];
  if (isRecord(functionResponse)) {
    const { name = '', response = {} } = functionResponse;
    const mark = isFailedResponse(response) ? terminal.red('✗') : terminal.green('✓');
    return [`← ${mark} ${shown(name)}: ${shortened(json(response), most)}`];
  }
  if (typeof text === 'string') return printableLines((thought ? '(thought) ' : '') + text);
  if (isRecord(inlineData)) return [`[${shown(inlineData['mimeType'] ?? 'data')}]`];
  if (isRecord(fileData)) return [`[${shown(fileData['fileUri'] ?? 'file')}]`];
  return [json(other)];
}

/** A change that is not an event, in a line. */
export function changeLine(terminal: Terminal, change: LogChange): string {
  return terminal.dim(`       ${change.change}${printable(changeDetail(change))}`);
}

function changeDetail(change: LogChange): string {
  switch (change.change) {
    case 'created':
      return Object.keys(change.state).length > 0 ? ` with ${json(change.state)}` : '';
    case 'state': {
      const removed = change.removed.map((key) => `${key} removed`);
      return `: ${[...Object.entries(change.state).map(([key, value]) => `${key} = ${json(value)}`), ...removed].join(', ')}`;
    }
    case 'deleted':
      return change.soft ? ' (it may be restored)' : '';
    case 'replaced': {
      const event = change.eventSeq === undefined ? '' : `event ${change.eventSeq} of `;
      return ` (${change.reason}): ${event}events ${change.firstSeq} to ${change.seq}`;
    }
  }
}
