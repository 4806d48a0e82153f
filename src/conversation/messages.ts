import { isCompactedEvent, type Event } from '@google/adk';
import { isRecord } from '../model/json.js';
import { partsOf, type LooseEvent } from '../model/turn.js';
import { isAbortEvent } from './aborted.js';
import { isFailedResponse } from './failed-response.js';
import { Calls, type Call, type ToolCall } from './calls.js';

/** A tool call as a user interface shows it. Its `args` are empty if the call itself is not among the events. */
export interface MessageToolCall extends Pick<ToolCall, 'name' | 'args' | 'response'> {
  /** The id of the call and of its response. ADK gives an id to every call that a model makes. */
  id?: string;
  /** Whether the response comes from outside: the user confirms, logs in, or answers a question. */
  isLongRunning: boolean;
  /** True if the response says that the tool failed: `error` that is not empty, `isError`, `status: 'error'` or `success: false`. */
  isFailed?: true;
  /** True if the response may be in a later page: the events end before the session does. */
  isResponseMissing?: true;
  /** True if there is only a response: none of the events before it has a call with its id. */
  isCallMissing?: true;
}

/** An event as a user interface shows it. */
export interface Message {
  /** The id of the event. */
  id: string;
  role: 'user' | 'agent';
  /** `user`, or the name of the agent. */
  author: string;
  /** The time of the event, in ms since 1970. */
  timestamp: number;
  /** The written or spoken text; empty if the event has none. */
  text: string;
  /** The model's reasoning, if it gave any. */
  thoughts?: string;
  toolCalls: MessageToolCall[];
  /** Files, code that the model ran and its results, as they are in the event. */
  attachments: NonNullable<NonNullable<Event['content']>['parts']>;
  /** What went wrong, if the event reports an error. */
  error?: string;
  /** True if the run was aborted here; a run has one such message. */
  isAborted?: true;
}

/** Events of a session with their numbers. `toMessages` takes it. */
export interface EventPage {
  events: {
    seq: number;
    event: Event;
    /** When the database stored it, by its own clock, in ms since 1970; absent if it comes from a store that does not keep this. */
    appendTime?: number;
  }[];
  /** The number of the oldest event that the session has; 1 unless events were trimmed. */
  firstSeq: number;
  /** The number of its newest event; 0 if it never had one. */
  lastSeq: number;
}

/**
 * Derives the conversation that a user interface shows from raw events. Nothing is stored for it, so another view of the same
 * events needs no migration. Values are shared with the events, not copied.
 *
 * It follows what ADK 2.0.0 does with events:
 * - `partial` events are left out: `Runner` doesn't append them, since a whole event with the same text follows.
 * - Thoughts are separate from the text, as in `stringifyContent` and `toStructuredEvents`.
 * - Compacted events are left out: they replace older events for the model only (`getContents`), and the older ones are still
 *   shown. ADK has no other reader that knows them; `isCompactedEvent` finds them.
 * - A message is the user's if its author is `user`, whatever its content's role, as in `toA2AMessage`.
 * - Function responses belong to calls of the same id and branch, in the order of the events; of several responses to one call
 *   the last counts. A response whose call is not among the events is a tool call of its own event's message, with
 *   `isCallMissing`.
 * - ADK's own requests (`adk_request_confirmation`, `adk_request_credential`, `adk_request_input`) are long-running tool
 *   calls like others: without a response they wait for the user.
 * - If a Runner newer than 2.0.0 aborted a run, it shows as one message with `isAborted` and no `error`; the open calls have
 *   the Runner's response.
 * - An error shows as its message, or else its code, as in `toStructuredEvents`.
 * - The transcription of a live turn is its text.
 *
 * An event with none of these, such as one that only changes state, makes no message.
 *
 * @param source events in append order, such as those of a session, of a part of it, or of an event log; or a page of
 *   `readEvents`, in either order. For two pages, pass the events of both: `toMessages([...older, ...newer])`.
 * @returns the messages, in the order of the events.
 */
export function toMessages(source: readonly Event[] | EventPage): Message[] {
  const { events, isCut } = 'lastSeq' in source ? inOrder(source) : { events: source, isCut: false };
  const messages: Message[] = [];
  const shown = new Map<Call, MessageToolCall>();
  const calls = new Calls();
  const aborted = new Set<string>();
  for (const [i, event] of events.entries()) {
    if (event.partial || isCompactedEvent(event)) continue;
    const message = toMessage(event);
    for (const call of calls.add(i, event).made) {
      const { id, name, args, isLongRunning, isMissing } = call;
      const toolCall = { ...(id && { id }), name, args, isLongRunning, ...(isMissing && { isCallMissing: isMissing }) };
      shown.set(call, toolCall);
      message.toolCalls.push(toolCall);
    }
    // An aborted run has an event for each agent whose calls were open.
    const isRepeated = message.isAborted && aborted.has(event.invocationId);
    if (message.isAborted) aborted.add(event.invocationId);
    if (isShown(message) || (message.isAborted && !isRepeated)) messages.push(message);
  }
  for (const [{ response }, toolCall] of shown) {
    if (isFailedResponse(response)) toolCall.isFailed = true;
    if (response) toolCall.response = response;
    else if (isCut) toolCall.isResponseMissing = true;
  }
  return messages;
}

function inOrder({ events, lastSeq }: EventPage) {
  const sorted = events.toSorted((a, b) => a.seq - b.seq);
  const last = sorted.at(-1);
  return { events: sorted.map(({ event }) => event), isCut: last !== undefined && last.seq < lastSeq };
}

function toMessage(event: Event): Message {
  const { author, errorMessage, errorCode, inputTranscription, outputTranscription }: LooseEvent = event;
  const role = author === 'user' ? 'user' : 'agent';
  const parts = partsOf(event);
  const spoken = isRecord(inputTranscription) ? inputTranscription : outputTranscription;
  const textOfParts = (isThought: boolean) =>
    parts.map(({ thought, text }) => (!!thought === isThought && typeof text === 'string' ? text : '')).join('');
  const thoughts = textOfParts(true);
  const isAborted = isAbortEvent(event);
  const error = isAborted ? '' : [errorMessage, errorCode].find((text) => typeof text === 'string' && text !== '');
  return {
    id: event.id,
    role,
    author: typeof author === 'string' ? author : role,
    timestamp: event.timestamp,
    text: textOfParts(false) || (isRecord(spoken) && typeof spoken['text'] === 'string' ? spoken['text'] : ''),
    ...(thoughts && { thoughts }),
    toolCalls: [],
    attachments: parts.filter(isAttachment),
    ...(typeof error === 'string' && error && { error }),
    ...(isAborted && { isAborted }),
  };
}

function isAttachment(part: Record<string, unknown>): boolean {
  const { thought, inlineData, fileData, executableCode, codeExecutionResult } = part;
  return !thought && [inlineData, fileData, executableCode, codeExecutionResult].some(isRecord);
}

function isShown({ text, thoughts, toolCalls, attachments, error }: Message): boolean {
  return !!(text || thoughts || error) || toolCalls.length > 0 || attachments.length > 0;
}
