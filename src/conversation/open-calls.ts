import { REQUEST_CONFIRMATION_FUNCTION_CALL_NAME, type Event } from '@google/adk';
import { isRecord } from '../model/json.js';
import { partsOf, type LooseEvent } from '../model/turn.js';
import { isAbortEvent } from './aborted.js';

/** A long-running call, or one of ADK's own questions, answered or not. */
export interface WaitingCall {
  /** The number of the event that made the call. */
  seq: number;
  /** Its place among the calls of that event. */
  number: number;
  name: string;
  /** When the event was made, in ms since 1970. */
  timestamp: number;
  id: string;
  branch?: string;
  /** The id of the call for which ADK asks for a confirmation. */
  about?: string;
  /** The number of the last event that answers it; absent while it waits. */
  openUntil?: number;
}

const isWaiting = ({ openUntil }: WaitingCall): boolean => openUntil === undefined;

/** The calls that an event opens or answers. */
export interface CallEffects {
  opens: readonly Omit<WaitingCall, 'seq' | 'timestamp'>[];
  /** The ids of its responses. */
  responds: readonly string[];
  /** Whether these answer open calls: they are from a person, or say that the run was aborted. */
  answers: boolean;
  branch: string | undefined;
}

/** @returns undefined for an event without long-running calls and responses, like nearly all events. */
export function effectsOf(event: LooseEvent): CallEffects | undefined {
  const { author, longRunningToolIds } = event;
  const branch = isText(event.branch) ? event.branch : undefined;
  const isOfUser = author === 'user';
  const waiting = isOfUser || !Array.isArray(longRunningToolIds) ? [] : longRunningToolIds;
  const parts = partsOf(event);
  const called = waiting.length > 0 ? parts.map(({ functionCall }) => functionCall).filter(isRecord) : [];
  const opens = called.flatMap(({ id, name, args }, number) => {
    if (!isText(id) || !waiting.includes(id)) return [];
    const original =
      name === REQUEST_CONFIRMATION_FUNCTION_CALL_NAME && isRecord(args) ? args['originalFunctionCall'] : {};
    const about = isRecord(original) ? original['id'] : undefined;
    return [{ number, name: isText(name) ? name : '', id, ...(branch && { branch }), ...(isText(about) && { about }) }];
  });
  const responds = parts.flatMap(({ functionResponse: response }) =>
    isRecord(response) && isText(response['id']) ? [response['id']] : [],
  );
  if (opens.length + responds.length === 0) return undefined;
  return { opens, responds, answers: isOfUser || isAbortEvent(event), branch };
}

const isText = (value: unknown): value is string => typeof value === 'string' && value !== '';

/** Whether an event changes which calls are open, as far as the events of the handle show. */
export function areChanged({ opens, responds, answers }: CallEffects, events: readonly Event[]): boolean {
  if (answers || opens.length > 0) return true;
  // A tool that runs after a yes in plain text closes ADK's question.
  return events.some(
    (event) =>
      event.longRunningToolIds?.length &&
      effectsOf(event)?.opens.some(({ about }) => about && responds.includes(about)),
  );
}

/** The long-running calls of a session. Those that are open are the same as `openLongRunningCalls` finds in its events. */
export class WaitingCalls {
  #all: readonly WaitingCall[];

  constructor(all: readonly WaitingCall[] = []) {
    this.#all = all;
  }

  /** All of them, including the answered ones. */
  get all(): readonly WaitingCall[] {
    return this.#all;
  }

  /**
   * Adds the next event.
   *
   * @returns the ids of its answers to calls that are not open.
   */
  add({ seq, timestamp }: { seq: number; timestamp: number }, effects: CallEffects): string[] {
    const { opens, responds, answers, branch } = effects;
    const unasked = responds.filter((id) => {
      const waiting = answers ? this.#find(id, branch, isWaiting) : undefined;
      // Another answer to the same call: ADK uses each of them.
      const answered = answers ? (waiting ?? this.#find(id, branch)) : undefined;
      this.#all = this.#all.map((call) => {
        const isAnswered = call === answered || (isWaiting(call) && call.about === id && isOfBranch(call, branch));
        return isAnswered ? { ...call, openUntil: seq } : call;
      });
      return answers && !waiting;
    });
    // In a branch, ADK gives an answer to the newest call with its id, so an earlier call can never be answered.
    const isReplaced = (call: WaitingCall) =>
      isWaiting(call) && call.seq !== seq && opens.some(({ id, branch }) => id === call.id && branch === call.branch);
    const opened = opens.map((call) => ({ ...call, seq, timestamp }));
    this.#all = [...this.#all.filter((call) => !isReplaced(call)), ...opened];
    return unasked;
  }

  #find(id: string, branch: string | undefined, fits = (_: WaitingCall) => true): WaitingCall | undefined {
    const calls = this.#all.filter((call) => call.id === id && fits(call));
    const newest =
      calls.findLast((call) => call.branch === (branch || undefined)) ??
      calls.findLast((call) => isOfBranch(call, branch));
    return calls.find(({ seq }) => seq === newest?.seq);
  }
}

const isOfBranch = (call: WaitingCall, branch: string | undefined) => !branch || !call.branch || call.branch === branch;

export function callsIn(events: readonly { seq: number; event: Event }[]): readonly WaitingCall[] {
  const calls = new WaitingCalls();
  for (const { seq, event } of events) {
    const effects = effectsOf(event);
    if (effects) calls.add({ seq, timestamp: event.timestamp }, effects);
  }
  return calls.all;
}
