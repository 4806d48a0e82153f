import type { Event } from '@google/adk';
import { withoutUndefined, isRecord, recordOf } from '../model/json.js';
import { partsOf, type LooseEvent } from '../model/turn.js';
import { isAbortEvent } from './aborted.js';
import { byPlace, CallLists, type Place } from './call-lists.js';
import { isOfWorkflow, isQuestion, isTaken, questionOf, type Question } from './answers.js';
import { toolResultOf, type ToolResult } from './tool-results.js';

/** A call of a long-running tool, or one of ADK's questions: a row of `adk_open_calls`. */
export interface LongRunningCall extends Place, Question {
  readonly id: string;
  readonly name: string;
  /** When the event was made, in ms since 1970. */
  readonly timestamp: number;
  /** The number of the last event that closes it; absent while it waits. */
  openUntil?: number;
  /** The number of the first event that answers it; absent if none has. ADK may have refused that answer. */
  answeredFrom?: number;
  /** Whether the user has closed it, and the agent has not continued since. */
  awaitsRun?: boolean;
  /** The invocation of the newest event before it was closed: a run that continues without the answer. */
  during?: string;
  /** Whether the next result of the call that it is about belongs to it. */
  awaitsResult?: boolean;
  /** Whether the tool is a workflow, so that its own result closes the call. */
  isNode?: boolean;
  /** The workflow that raised it, until that has ended or got an answer in a function response. */
  run?: WorkflowRun;
  /**
   * Open calls of other tools that were made since with the id of its result, before the next row that they concern: a result belongs to
   * them first.
   */
  later?: readonly Place[];
}

/** How far a workflow has gone since it raised a call. */
interface WorkflowRun {
  /** The last invocation that has run the workflow. */
  id: string;
  /** The last invocation in which a user has spoken. */
  message?: string;
  /** Whether the workflow is the tool of an agent, which resumes it with any plain text. */
  isTool?: boolean;
  /** Whether that invocation has raised nothing yet. If it ends so, ADK forgets what was raised before. */
  rests?: boolean;
  /** Whether a plain text has answered the call. ADK still counts it as unanswered. */
  isText?: boolean;
}

/** A call of a tool, or one of ADK's own questions, in a session. */
export interface ToolCall {
  /** The function response that answers the call must have this `id`. */
  id: string;
  /** The name of the tool, or `adk_request_confirmation`, `adk_request_credential` or `adk_request_input`. */
  name: string;
  args: Record<string, unknown>;
  /** The event that made the call. */
  event: Event;
  /** What the tool has returned, the last of several responses; absent if nothing. A long-running call may still wait for its answer. */
  response?: Record<string, unknown>;
}

/** A tool call with its response so far. */
export interface Call extends LongRunningCall {
  readonly isLongRunning: boolean;
  readonly args: Record<string, unknown>;
  /** The event that made the call, or that of the response if the call is missing; absent if it was read from its row. */
  readonly event?: Event;
  /** The last event of the user that closed it. */
  answer?: Event;
  /** The last of several responses; while it is open, what its tool has returned. */
  response?: Record<string, unknown>;
  /** What else its tool has done. */
  actions?: ToolResult['actions'];
  /** Whether there is only a response, because the call is not among the earlier events. */
  readonly isMissing?: true;
  /** The call that the question is about. */
  readonly asked?: Call;
  /** ADK's question about this call. */
  question?: Call;
  /** How many events of an invocation came before it was made, or opened again. */
  invocations?: number;
}

/** What an event has done. */
export interface Effects {
  /** Its calls, then the missing calls of its responses. */
  made: Call[];
  /** For each of its function responses the call that it belongs to, unless that is missing. */
  responses: Map<object, Call>;
  /** The open call whose tool has returned, if the event keeps its result: see `toolJournal`. */
  returned?: Call;
  /** The first answer that no call waits for, and whether there was one that did. */
  refused?: { id: string; isAnswered: boolean };
}

/**
 * Which calls of a session wait, as ADK decides it; `isTaken` has the table of what answers. Made from all events in their order,
 * or from the rows of a session and the events after them: the rows that result are the same. A row whose call `takes` an answer by
 * its `schema` also needs the `args` of the call, before an event that answers it.
 *
 * Calls and responses are paired by branch, order and place. The id is not enough: models number their calls (`call_0`) from the
 * beginning in each turn, also in agents that run in parallel (google/adk-python#6761). A response belongs to an earlier call of
 * the same branch, or of any branch if the call or the response has none: the user's answer has no branch, and neither has a tool
 * that ADK runs after a confirmation. Open calls come first, the newest event before older ones; an answer of the user prefers a
 * call that waits. If no call is open, the response is another one to the newest call.
 */
export class Calls {
  /** All calls by id: a model may give the same id to each of its calls. */
  readonly #made = new CallLists<Call>();
  readonly #open = new CallLists<Call>();
  readonly #longRunning = new CallLists<Call>();
  readonly #rows = new Set<Call>();
  /** Long-running calls that an event can change although it is no answer, and the same by id. */
  readonly #unsettled = new Set<Call>();
  readonly #unsettledById = new CallLists<Call>();
  /** Those that are about a call, by its id. */
  readonly #asking = new CallLists<Call>();
  /** Those that a result concerns, by its id. */
  readonly #watching = new CallLists<Call>();
  /** Those that may be workflows, by the last part of the name of their branch. */
  readonly #nodes = new CallLists<Call>();
  /** Those whose workflow has not ended. */
  readonly #raised = new Set<Call>();
  /** Those that await a run. */
  readonly #unrun = new Set<Call>();
  /** Those that the current event closes. */
  #closed: Call[] = [];
  /** Those that may be settled after the current event. */
  #changed: Call[] = [];
  /** The ids of calls that are not missing. */
  readonly #known = new Set<string>();
  /** The newest invocation, and how many events had one. */
  #invocation = '';
  #invocations = 0;

  constructor(rows: readonly (LongRunningCall & Partial<Call>)[] = []) {
    const places = new Map<string, Call>();
    for (const row of rows) {
      this.#keep({ args: {}, ...row, ...(row.run && { run: { ...row.run } }), isLongRunning: true });
      for (const place of row.later ?? [])
        places.set(`${place.seq} ${place.number}`, { ...UNNAMED, ...place, id: watchedBy(row) });
    }
    for (const call of [...places.values()].sort(byPlace)) this.#keep(call);
  }

  /** Whether events that neither make a long-running call nor answer one can change the rows. */
  get areUnsettled(): boolean {
    return this.#unsettled.size > 0 || this.#unrun.size > 0;
  }

  /** The calls that the user has closed, if the agent has not continued since. */
  get unrun(): readonly Call[] {
    return [...this.#unrun];
  }

  /** The calls that no response has closed, in their order. */
  get open(): Call[] {
    return [...this.#open.values()].sort(byPlace);
  }

  get rows(): LongRunningCall[] {
    const later = new Map<Call, readonly Place[]>();
    const left = new Map<string, Call[]>();
    for (const call of [...this.#unsettled].sort(byPlace).reverse()) {
      const id = watchedBy(call);
      const open = left.get(id) ?? (id ? this.#open.of(id).filter(isOrdinary) : []);
      left.set(id, open);
      later.set(call, open.splice(open.findLastIndex(({ seq }) => seq <= call.seq) + 1).map(placeOf));
    }
    return [...this.#rows].map((call) => {
      const { openUntil, answeredFrom, awaitsRun, takes, about, awaitsResult, isNode, run } = call;
      const { seq, number, id, name, timestamp, branch } = call;
      const during = this.#during(call);
      const places = later.get(call)?.length ? later.get(call) : undefined;
      // Always in this order, so that rows that are the same have the same text.
      return withoutUndefined({
        ...{ openUntil, answeredFrom, awaitsRun, during, seq, number, id, name, timestamp, branch, takes, about },
        ...{ awaitsResult, isNode },
        ...{
          run:
            run &&
            withoutUndefined({
              id: run.id,
              message: run.message,
              isTool: run.isTool,
              rests: run.rests,
              isText: run.isText,
            }),
        },
        later: places,
      });
    });
  }

  /** Adds the next event. */
  add(seq: number, event: Event): Effects {
    const loose: LooseEvent = event;
    const effects: Effects = { made: [], responses: new Map() };
    if (loose.partial) return effects;
    const result = toolResultOf(loose);
    if (result) {
      const call = this.running(result.id, loose);
      return call
        ? { ...effects, returned: Object.assign(call, { response: result.response, actions: result.actions }) }
        : effects;
    }
    const parts = partsOf(loose);
    this.#follow(seq, loose, parts);
    // Responses first: an event does not answer its own calls.
    const missing: Call[] = [];
    for (const { functionResponse: response } of parts) {
      if (!isRecord(response)) continue;
      const call = isAnswering(loose)
        ? this.#answer(seq, loose, response, effects)
        : this.#result(seq, loose, response);
      if (call) effects.responses.set(response, call);
      else missing.push(this.#missing(seq, event, response));
    }
    if (loose.author === 'user') this.#hear(seq, loose, parts);
    this.#awaitRun(event);
    effects.made = [...callsOf(loose).map((call, number) => this.#make({ seq, number }, event, call)), ...missing];
    for (const call of this.#changed) if (call.isLongRunning && !isUnsettled(call)) this.#settle(call);
    this.#changed = [];
    return effects;
  }

  /** @returns the open call with this id that a tool runs for, in the branch of its run. */
  running(id: string, run: Pick<LooseEvent, 'branch'>): Call | undefined {
    return id ? this.#open.newest(id, run) : undefined;
  }

  /** Notes which calls the user has closed, or that the agent continues. */
  #awaitRun(event: Event): void {
    const invocation = textOf(event.invocationId);
    const goesOn = (call: Call) => {
      if (invocation && invocation === call.during) return true;
      delete call.awaitsRun;
      delete call.during;
      return false;
    };
    if (event.author === 'user')
      for (const call of this.#closed) {
        if (!call.isLongRunning) continue;
        this.#unrun.add(call);
        call.awaitsRun = true;
        call.answer = event;
        if (invocation === call.during) delete call.during;
      }
    else if (isContinuation(event)) for (const call of this.#unrun) if (!goesOn(call)) this.#unrun.delete(call);
    this.#closed = [];
    if (!invocation) return;
    this.#invocation = invocation;
    this.#invocations++;
  }

  /** @returns the invocation of the newest event before a call was closed, without writing it into each open call for each event. */
  #during(call: Call): string | undefined {
    return isOpen(call) && this.#invocations > (call.invocations ?? 0) ? this.#invocation : call.during;
  }

  /** Follows the runs of workflows, as ADK's `eventsForCurrentRun` does. */
  #follow(
    seq: number,
    { branch, nodeInfo, invocationId }: LooseEvent,
    parts: readonly Record<string, unknown>[],
  ): void {
    for (const call of this.#around(branch)) if (!call.takes) call.isNode = true;
    if (!isRecord(nodeInfo) || !textOf(nodeInfo['path'])) return;
    const raises = parts.some(({ functionCall }) => isRecord(functionCall) && isQuestion(functionCall));
    for (const call of this.#raised) {
      const { run } = call;
      if (!run || run.isTool) continue;
      const mayWait = isOfWorkflow(call) && !run.isText;
      if (textOf(invocationId) && invocationId !== run.id) {
        if (run.rests) {
          this.#leaveRun(call);
          continue;
        }
        call.run = { ...run, id: String(invocationId), rests: true };
        if (mayWait) this.#shut(seq, call);
      }
      if (!raises) continue;
      delete call.run?.rests;
      if (mayWait) this.#reopen(call);
    }
  }

  /** Gives an answer to its call. @returns the call. */
  #answer(seq: number, event: LooseEvent, answer: Record<string, unknown>, effects: Effects): Call | undefined {
    const id = textOf(answer['id']);
    if (!id) return undefined;
    const waiting = this.#unsettledById.newest(id, event, isOpen);
    if (waiting) {
      waiting.answeredFrom ??= seq;
      if (!isAbortEvent(event) && !isTaken(waiting.takes, answer, waiting.args)) return waiting;
      return this.#close(seq, waiting, answer);
    }
    // ADK takes any response to the call that it asks about as its result.
    if (this.#asking.of(id).length > 0) return this.#result(seq, event, answer);
    const answered = this.#longRunning.newest(id, event);
    // ADK uses each of several answers.
    if (answered) this.#end(seq, answered);
    const open = this.#open.newest(id, event);
    if (open) return this.#close(seq, open, answer);
    effects.refused ??= { id, isAnswered: this.#known.has(id) };
    return respond(answered ?? this.#made.newest(id, event), answer);
  }

  /** Gives the result of a tool to its call. @returns the call. */
  #result(seq: number, event: LooseEvent, result: Record<string, unknown>): Call | undefined {
    const id = textOf(result['id']);
    if (!id) return undefined;
    const watching = this.#watching.newest(id, event);
    const call = this.#open.newest(id, event, isOrdinary, watching?.seq);
    if (call) return this.#close(seq, call, result);
    if (!watching) return respond(this.#made.newest(id, event), result);
    if (watching.about === undefined)
      return watching.isNode ? this.#close(seq, watching, result) : respond(watching, result);
    // If the user says yes in plain text, the tool runs, and the question gets no response.
    this.#close(seq, watching);
    delete watching.awaitsResult;
    const { asked } = watching;
    return asked && !asked.isLongRunning ? this.#close(seq, asked, result) : respond(asked ?? watching, result);
  }

  /** Takes a plain text as the answer of a workflow's question, as ADK's `resumeInputsFromPlainText` does. */
  #hear(seq: number, event: LooseEvent, parts: readonly Record<string, unknown>[]): void {
    const invocation = textOf(event.invocationId);
    const raised = [...this.#raised];
    // A workflow gives texts to its agents in events of the user, too.
    const isOfRun = invocation && raised.some(({ run }) => run?.message === invocation || run?.id === invocation);
    if (invocation) for (const call of raised) call.run = { id: '', ...call.run, message: invocation };
    if (isOfRun || parts.length === 0 || parts.some(({ text }) => typeof text !== 'string')) return;
    for (const call of raised) if (call.run?.isTool && isOfWorkflow(call)) this.#close(seq, call);
    const counted = raised.filter(({ run }) => run && !run.isTool);
    if (new Set(counted.map(({ id }) => id)).size !== 1) return;
    const call = counted.findLast((each) => isOfWorkflow(each) && isOpen(each));
    if (!call?.run) return;
    call.run = { ...call.run, isText: true };
    this.#shut(seq, call);
    this.#closed.push(call);
  }

  #make({ seq, number }: Place, event: Event, made: Record<string, unknown>): Call {
    const { id, name, args } = made;
    const { branch, nodeInfo, invocationId }: LooseEvent = event;
    const call: Call = {
      seq,
      number,
      id: textOf(id) ?? '',
      name: textOf(name) ?? '',
      args: isRecord(args) ? args : {},
      timestamp: event.timestamp,
      event,
      ...(textOf(branch) && { branch: String(branch) }),
      isLongRunning: isLongRunningCall(event, made),
    };
    if (!call.isLongRunning) return this.#keep(call);
    const isTool = this.#around(branch).length > 0;
    const isOfNode = isRecord(nodeInfo) && textOf(nodeInfo['path']);
    const question = questionOf(call.id, call.name, call.args);
    const { about } = question;
    const asked = about && this.#open.newest(about, event);
    const asking: Call = {
      ...call,
      ...question,
      ...(about && { awaitsResult: true }),
      ...(textOf(invocationId) && { during: String(invocationId) }),
      ...(isOfNode && { run: { id: textOf(invocationId) ?? '', ...(isTool && { isTool }) } }),
      ...(asked && { asked }),
    };
    if (asked) asked.question = asking;
    // In a branch, ADK gives an answer to the newest call with its id, so an earlier call can never be answered.
    const isReplaced = (each: Call) => each.seq !== seq && mayWait(each);
    for (const replaced of this.#unsettledById.inBranch(call.id, call.branch).filter(isReplaced)) {
      for (const lists of [this.#made, this.#open, this.#longRunning]) lists.delete(call.id, replaced);
      for (const calls of [this.#rows, this.#raised, this.#unrun]) calls.delete(replaced);
      this.#settle(replaced);
    }
    return this.#keep(asking);
  }

  #missing(seq: number, event: Event, { id, name, response }: Record<string, unknown>): Call {
    return this.#keep({
      ...{ ...UNNAMED, seq, event, id: textOf(id) ?? '', name: textOf(name) ?? '', timestamp: event.timestamp },
      ...(textOf(event.branch) && { branch: String(event.branch) }),
      ...{ openUntil: seq, isMissing: true, response: isRecord(response) ? response : {} },
    });
  }

  #keep(call: Call): Call {
    const { id } = call;
    call.invocations = this.#invocations;
    this.#made.add(id, call);
    if (!call.isMissing) this.#known.add(id);
    if (isOpen(call)) this.#open.add(id, call);
    if (!call.isLongRunning) return call;
    this.#rows.add(call);
    this.#longRunning.add(id, call);
    if (call.awaitsRun) this.#unrun.add(call);
    if (call.run) this.#raised.add(call);
    if (!isUnsettled(call)) return call;
    this.#unsettled.add(call);
    this.#unsettledById.add(id, call);
    this.#nodes.add(nodeOf(call), call);
    if (call.about !== undefined) this.#asking.add(call.about, call);
    if (!isCredential(call) || !isOpen(call)) this.#watching.add(watchedBy(call), call);
    return call;
  }

  #settle(call: Call): void {
    this.#unsettled.delete(call);
    this.#unsettledById.delete(call.id, call);
    this.#nodes.delete(nodeOf(call), call);
    if (call.about !== undefined) this.#asking.delete(call.about, call);
    this.#watching.delete(watchedBy(call), call);
  }

  #close(seq: number, call: Call, response?: Record<string, unknown>): Call {
    this.#end(seq, call);
    this.#leaveRun(call);
    // A workflow that has ended no longer waits.
    for (const each of call.isNode ? this.#raised : [])
      if (each.run?.isTool && isWithin(each.branch, call)) this.#close(seq, each);
    if (response) respond(call, response);
    return call;
  }

  #end(seq: number, call: Call): void {
    this.#shut(seq, call);
    call.answeredFrom ??= seq;
    this.#closed.push(call);
  }

  #shut(seq: number, call: Call): void {
    const during = this.#during(call);
    if (during !== undefined) call.during = during;
    if (isOpen(call)) {
      this.#open.delete(call.id, call);
      if (isCredential(call)) this.#watching.add(watchedBy(call), call);
    }
    call.openUntil = seq;
    this.#changed.push(call);
  }

  #reopen(call: Call): void {
    if (isOpen(call)) return;
    delete call.openUntil;
    call.invocations = this.#invocations;
    this.#open.add(call.id, call);
  }

  #leaveRun(call: Call): void {
    delete call.run;
    this.#raised.delete(call);
    this.#changed.push(call);
  }

  /** @returns the calls of workflows in whose branches an event is. */
  #around(branch: unknown): Call[] {
    if (typeof branch !== 'string' || !branch.includes('@')) return [];
    const parts = new Set(branch.split('.'));
    return [...parts].flatMap((part) => this.#nodes.of(part).filter((call) => isWithin(branch, call)));
  }
}

/** Whether an event only sets state, or keeps the result of a tool. */
export const isAside = (event: LooseEvent): boolean => {
  const { stateDelta, artifactDelta } = recordOf(event.actions);
  const sets = [stateDelta, artifactDelta].some((delta) => Object.keys(recordOf(delta)).length > 0);
  const says = partsOf(event).length > 0 || !!event.errorCode || event.output !== undefined;
  return !says && (sets || toolResultOf(event) !== undefined);
};

/** Whether an event of an agent is more than results of tools, which no model has seen yet. */
export const isContinuation = (event: LooseEvent): boolean => {
  const parts = partsOf(event);
  const { skipSummarization } = recordOf(event.actions);
  if (parts.length === 0) return !isAside(event);
  return !!skipSummarization || parts.some(({ functionResponse }) => !isRecord(functionResponse));
};

/** @returns the calls that an event makes, in the order of their numbers. */
export const callsOf = (event: LooseEvent): Record<string, unknown>[] =>
  partsOf(event).flatMap(({ functionCall }) => (isRecord(functionCall) ? [functionCall] : []));

const UNNAMED = { number: 0, name: '', timestamp: 0, args: {}, isLongRunning: false } as const;

const textOf = (value: unknown): string | undefined => (typeof value === 'string' && value !== '' ? value : undefined);

export const isOpen = ({ openUntil }: Pick<LongRunningCall, 'openUntil'>): boolean => openUntil === undefined;

/** Whether it waits, or will again if the workflow asks something else. */
const mayWait = (call: Call): boolean => isOpen(call) || (call.run?.rests === true && !call.run.isText);

const isCredential = ({ takes }: Question): boolean => takes === 'credential' || takes === 'code';

const isUnsettled = ({ openUntil, run, awaitsResult }: LongRunningCall): boolean =>
  openUntil === undefined || run !== undefined || awaitsResult === true;

/** @returns the id of the call whose result concerns this one. */
const watchedBy = ({ id, about, takes }: LongRunningCall): string => about ?? (takes ? '' : id);

const placeOf = ({ seq, number, branch }: Place): Place => ({ seq, number, ...(branch && { branch }) });

const isOrdinary = ({ isLongRunning }: Call): boolean => !isLongRunning;

/** @returns the last part of the name of the branch in which ADK runs a call that is a workflow. */
const nodeOf = ({ name, id }: LongRunningCall): string => `${name}@${id}`.replace(/^.*\./s, '');

/** ADK runs a workflow that is a tool in a branch of its own. */
const isWithin = (branch: unknown, { name, id }: LongRunningCall): boolean =>
  typeof branch === 'string' && `.${branch}.`.includes(`.${name}@${id}.`);

function respond(call: Call | undefined, { response }: Record<string, unknown>): Call | undefined {
  if (call) call.response = isRecord(response) ? response : {};
  return call;
}

/** Whether an event may make or answer a long-running call. Others change rows only while `areUnsettled`. */
export const concernsCalls = (event: LooseEvent): boolean =>
  partsOf(event).some(
    ({ functionCall: call, functionResponse: response }) =>
      (isRecord(response) && !!textOf(response['id']) && isAnswering(event)) ||
      (isRecord(call) && isLongRunningCall(event, call)),
  );

const isLongRunningCall = ({ author, longRunningToolIds: ids }: LooseEvent, { id }: Record<string, unknown>): boolean =>
  author !== 'user' && !!textOf(id) && Array.isArray(ids) && ids.includes(id);

/** Whether the responses of an event answer calls, and are not the results of tools. */
const isAnswering = (event: LooseEvent): boolean => event.author === 'user' || isAbortEvent(event);

/** @param events in their order; those without an event cannot be read. */
export function callsIn(events: Iterable<{ readonly seq: number; readonly event: Event | undefined }>): Calls {
  const calls = new Calls();
  for (const { seq, event } of events) if (event) calls.add(seq, event);
  return calls;
}
