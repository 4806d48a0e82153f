import type { Event } from '@google/adk';
import type { LogChange } from '../../../src/index.js';
import { json, printable, printableLines, shownTime } from '../../studio/src/operations/words.js';
import type { Terminal } from './terminal.js';

type Part = NonNullable<NonNullable<Event['content']>['parts']>[number];

/** An event as a person reads it: who said or called what, and what state it wrote. */
export function eventLines(terminal: Terminal, seq: number, event: Event): string[] {
  const said = (event.content?.parts ?? []).flatMap(partLines);
  const { errorCode, errorMessage, interrupted } = event;
  if (errorCode !== undefined || errorMessage !== undefined)
    said.push(terminal.red(`error ${printable([errorCode, errorMessage].filter(Boolean).join(': '))}`));
  if (interrupted) said.push(terminal.red('interrupted'));
  // Stored events may lack what ADK's types promise.
  const actions: Partial<Event['actions']> | undefined = event.actions;
  if (actions?.transferToAgent) said.push(terminal.dim(`hands over to ${printable(actions.transferToAgent)}`));
  const state = Object.entries(actions?.stateDelta ?? {}).map(([key, value]) => `${printable(key)} = ${json(value)}`);
  const lines = [...said, ...state.map((text) => terminal.cyan(text))];
  const author = printable(event.author ?? '');
  const head = `${String(seq).padStart(5)}  ${terminal.dim(shownTime(event.timestamp))}  ${terminal.bold(author)}`;
  return [head, ...lines.map((line) => `       ${line}`)];
}

function partLines({ text, thought, functionCall, functionResponse, inlineData, fileData, ...other }: Part): string[] {
  if (functionCall) return [`→ ${printable(functionCall.name ?? '')}(${json(functionCall.args ?? {})})`];
  if (functionResponse)
    return [`← ${printable(functionResponse.name ?? '')}: ${json(functionResponse.response ?? {})}`];
  if (text !== undefined) return printableLines((thought ? '(thought) ' : '') + text);
  if (inlineData) return [`[${printable(inlineData.mimeType ?? 'data')}]`];
  if (fileData) return [`[${printable(fileData.fileUri ?? 'file')}]`];
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
