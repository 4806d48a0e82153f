import { REQUEST_CONFIRMATION_FUNCTION_CALL_NAME, type Event } from '@google/adk';
import { isRecord } from '../model/objects.js';
import { partsOf, type LooseEvent } from '../model/turn.js';
import { isAbortEvent } from './aborted.js';

/** A long-running call, or a question of ADK's, that waits for its answer or has got it; the parts of `PairedCall` by which that is found. */
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
  /** The id of the call that ADK asks whether to run. */
  about?: string;
  /** The number of the last event that answers it; absent while it waits. */
  openUntil?: number;
}

const isWaiting = ({ openUntil }: WaitingCall): boolean => openUntil === undefined;

/** What an event does to the calls that wait. */
export interface CallEffects {
  opens: readonly Omit<WaitingCall, 'seq' | 'timestamp'>[];
  /** The ids of calls that it has responses to. */
  responds: readonly string[];
  /** Whether these answer a call that waits: they are a person's, or say that the run was aborted. */
  answers: boolean;
  branch: string | undefined;
}

/** @returns undefined for an event without long-running calls and responses, as nearly all are. */
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

/** Whether the calls that wait after an event are not those before it, as far as a handle with these events shows it. */
export function areChanged({ opens, responds, answers }: CallEffects, events: readonly Event[]): boolean {
  if (answers || opens.length > 0) return true;
  // A tool that has run after a yes in plain text closes ADK's question.
  return events.some(
    (event) =>
      event.longRunningToolIds?.length &&
      effectsOf(event)?.opens.some(({ about }) => about && responds.includes(about)),
  );
}

/** The long-running calls of a session, of which those wait that `openLongRunningCalls` finds in its events. */
export class WaitingCalls {
  #all: readonly WaitingCall[];

  constructor(all: readonly WaitingCall[] = []) {
    this.#all = all;
  }

  /** Those that have their answer among them. */
  get all(): readonly WaitingCall[] {
    return this.#all;
  }

  /**
   * Adds the next event.
   *
   * @returns the ids of the calls to which it has an answer although they do not wait.
   */
  add({ seq, timestamp }: { seq: number; timestamp: number }, effects: CallEffects): string[] {
    const { opens, responds, answers, branch } = effects;
    const unasked = responds.filter((id) => {
      const waiting = answers ? this.#find(id, branch, isWaiting) : undefined;
      // A further answer: ADK takes each of them to the call.
      const answered = answers ? (waiting ?? this.#find(id, branch)) : undefined;
      this.#all = this.#all.map((call) => {
        const isAnswered = call === answered || (isWaiting(call) && call.about === id && isOfBranch(call, branch));
        return isAnswered ? { ...call, openUntil: seq } : call;
      });
      return answers && !waiting;
    });
    // In one branch, ADK gives each answer to the newest call of the id, so nothing can answer the one before it.
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
