import {
  REQUEST_CONFIRMATION_FUNCTION_CALL_NAME,
  getFunctionCalls,
  getFunctionResponses,
  type Event,
} from '@google/adk';
import { isRecord } from '../model/json.js';
import { isAbortEvent } from './aborted.js';

type FunctionResponse = ReturnType<typeof getFunctionResponses>[number];

/** A tool call with its response so far. */
export interface PairedCall {
  /** The event that made the call, or that of the response if the call is missing. */
  readonly event: Event;
  readonly id: string | undefined;
  readonly name: string;
  readonly args: Record<string, unknown>;
  readonly isLongRunning: boolean;
  /** The last of several responses. */
  response?: Record<string, unknown>;
  /** Whether the call needs no response any more. The first result of a long-running tool leaves its call open. */
  isAnswered: boolean;
  /** Whether there is only a response, because the call is not among the earlier events. */
  readonly isMissing?: true;
  /** ADK's question whether to run this call. */
  question?: PairedCall;
}

/**
 * Pairs calls and responses by id, branch and order. The id is not enough: models number their calls (`call_0`) from the beginning in
 * each turn, also in agents that run in parallel (google/adk-python#6761).
 *
 * A response belongs to an earlier call of the same branch, or of any branch if the call or the response has none: the user's answer
 * has no branch, and neither has a tool that ADK runs after a confirmation. Open calls come first, the newest event before older
 * ones; an answer of the user prefers a long-running call. If no call is open, the response is another one to the newest call.
 */
export class PairedCalls {
  readonly all: PairedCall[] = [];
  /** The calls by the objects of their responses in the events. Missing calls are left out. */
  readonly answered = new Map<unknown, PairedCall>();
  readonly #byId = new Map<string, PairedCall[]>();

  /**
   * Adds the next event.
   *
   * @returns the calls of the event, then the missing calls of its responses.
   */
  add(event: Event): PairedCall[] {
    // Responses first: an event does not answer its own calls.
    const missing = getFunctionResponses(event).filter((response) => !this.#answer(event, response));
    return [
      ...getFunctionCalls(event).map(({ id, name = '', args = {} }) => {
        const isLongRunning = !!id && !!event.longRunningToolIds?.includes(id);
        return this.#keep({ event, id: id || undefined, name, args, isLongRunning, isAnswered: false });
      }),
      ...missing.map(({ id, name = '', response = {} }) => {
        const call = { event, id: id || undefined, name, args: {}, response } as const;
        return this.#keep({ ...call, isLongRunning: false, isAnswered: true, isMissing: true });
      }),
    ];
  }

  #keep(call: PairedCall): PairedCall {
    const { event, id, name, args, isLongRunning } = call;
    const { originalFunctionCall: original } = args;
    if (name === REQUEST_CONFIRMATION_FUNCTION_CALL_NAME && isRecord(original)) {
      const asked = this.#find(event, original['id'], isOpen);
      if (asked) asked.question = call;
    }
    this.all.push(call);
    if (id === undefined) return call;
    const known = this.#byId.get(id) ?? [];
    this.#byId.set(id, known);
    // In a branch, ADK gives an answer to the newest call with its id, so an earlier call can never be answered.
    const replaced = isLongRunning && known.findLast((each) => isWaiting(each) && each.event.branch === event.branch);
    if (replaced && replaced.event !== event) replaced.isAnswered = true;
    known.push(call);
    return call;
  }

  #answer(event: Event, functionResponse: FunctionResponse): boolean {
    const { id, response = {} } = functionResponse;
    const isOfUser = event.author === 'user';
    const call =
      (isOfUser ? this.#find(event, id, isWaiting) : undefined) ??
      this.#find(event, id, isOpen) ??
      this.#find(event, id, () => true);
    if (!call) return false;
    this.answered.set(functionResponse, call);
    call.response = response;
    call.isAnswered ||= !call.isLongRunning || isOfUser || isAbortEvent(event);
    // If the user says yes in plain text, the tool runs, and the question gets no response.
    if (call.question) call.question.isAnswered = true;
    return true;
  }

  /** @returns in the newest event with such a call: the first one without a response, or else the last one. */
  #find({ branch }: Event, id: unknown, fits: (call: PairedCall) => boolean): PairedCall | undefined {
    const calls = typeof id === 'string' ? (this.#byId.get(id) ?? []).filter(fits) : [];
    const newest =
      calls.findLast(({ event }) => event.branch === branch) ?? calls.findLast(({ event }) => !branch || !event.branch);
    return calls.find(({ event, response }) => event === newest?.event && !response) ?? newest;
  }
}

const isOpen = ({ isAnswered }: PairedCall): boolean => !isAnswered;

const isWaiting = (call: PairedCall): boolean => isOpen(call) && call.isLongRunning;
