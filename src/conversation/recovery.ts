import { createEvent, createEventActions, type Context, type Event, type Session } from '@google/adk';
import { callsIn, isAside, isContinuation, isOpen, type Call, type Calls, type ToolCall } from './calls.js';
import { isExactlyOnce } from './tool-results.js';

/** Asks the model to check first: the tool may have placed an order before the process died. */
const INTERRUPTED =
  'The run of this tool was interrupted before it returned a result. It may or may not have taken effect: ' +
  'find out before calling it again.';

const UNDONE =
  'The run of this tool was interrupted before it returned a result. It did not take effect: nothing was changed. ' +
  'Call it again if it is still needed.';

/**
 * Finds the tool calls that a crashed run left without a response. It also finds the calls of a run that is still under way, so
 * call it when nobody runs the session, for example while holding its lease.
 *
 * It ignores long-running calls, whose response comes from outside (`openLongRunningCalls` finds them), calls that wait for a
 * confirmation (it finds the question), calls that a newer Runner has answered because their run was aborted, and calls without
 * an id, which ADK cannot pair with a response (it gives an id to every call that a model makes).
 *
 * @param session a session with its full history.
 * @returns the calls in the order they were made, each with what the tool has returned if `toolJournal` or `exactlyOnce` has
 *   stored that; none if every call is answered.
 */
export function unansweredFunctionCalls(session: Session): ToolCall[] {
  return interruptedCalls(session).map(toolCallOf);
}

const toolCallOf = ({ id, name, args, event, response }: ToolCall): ToolCall => ({
  ...{ id, name, args, event },
  ...(response && { response }),
});

type InterruptedCall = Call & { event: Event };

function interruptedCalls(session: Session): InterruptedCall[] {
  return callsOfSession(session).open.flatMap(({ event, ...call }) => {
    // ADK stores no response while a tool waits for a confirmation. After it, ADK runs the tool only if there is no response.
    // With a result it has run: after a yes in plain text, or to the question about an earlier call with its id.
    const isAsked = call.question && isOpen(call.question) && !call.response;
    return event && call.id && !call.isLongRunning && !isAsked ? [{ ...call, event }] : [];
  });
}

/**
 * Finds the long-running calls that wait for their answer, anywhere in the session, even if other tools have returned or other turns
 * have followed since.
 *
 * As in ADK, a call is answered by a function response with its id in an event of the author `user`, such as the `Runner` makes
 * of `newMessage`, unless ADK refuses or ignores it: an answer that does not fit the `responseSchema` of the question, or that is
 * called otherwise than ADK's question. What the tool itself returns does not answer the call, since ADK cannot tell a pending
 * status from a result: a tool that returns its result at once is found, too, with that `response`. ADK's question for a
 * confirmation is also answered when the call that it asks about gets a response, as after a yes in plain text; a question of a
 * workflow, if it is the only one, by a plain text, and it no longer waits when the workflow has ended without it. Calls that a
 * newer Runner has answered because their run was aborted (`errorCode: 'INVOCATION_ABORTED'`) no longer wait. Calls without an id
 * and partial events are ignored.
 *
 * ```ts
 * const [open] = openLongRunningCalls(session);
 * ```
 *
 * @param session a session with its full history.
 * @returns the calls in the order they were made; none if every call is answered. If several branches wait with one id, an answer
 *   without a branch, as the `Runner` makes it, is that of the newest call. Of several calls with one id in one branch, only the
 *   newest can be answered.
 */
export function openLongRunningCalls(session: Session): ToolCall[] {
  return callsOfSession(session).open.flatMap(({ event, isLongRunning, ...call }) =>
    event && isLongRunning ? toolCallOf({ ...call, event }) : [],
  );
}

/** @returns the call that a tool runs for; undefined if the session has no such call without a response. */
export function runningCall({
  functionCallId = '',
  invocationContext: { session, ...run },
}: Context): Call | undefined {
  return callsOfSession(session).running(functionCallId, run);
}

const callsOfSession = ({ events }: Session): Calls => callsIn(events.map((event, seq) => ({ seq, event })));

/**
 * Builds the events that answer the calls of `unansweredFunctionCalls`. Models refuse a conversation in which a call has no
 * response, so without them a session whose run was killed in a tool can never continue. Nothing is written: append the events
 * before the next run. A response is
 *
 * - what the tool returned, with its state, if `toolJournal` or `exactlyOnce` has stored that;
 * - an error that says that the tool did not take effect, if it is one that `toolJournal` knows as `exactlyOnce`;
 * - otherwise an error that says that it may or may not have taken effect.
 *
 * ```ts
 * await service.appendEvents({ session, events: interruptedToolResponses(session) });
 * ```
 *
 * There is one event for each event that made calls, as without the crash. ADK 2.0.0 cannot pair one event with the calls of
 * several (tried with its content building): it puts the whole event after each of them, so that some responses follow no call.
 * After a killed `ParallelAgent`, each agent would also see the responses to the other's calls, or none at all if the author is
 * the other agent. Models refuse that, too.
 *
 * @param session a session with its full history.
 * @returns the events, in the order of the calls; none if every call is answered.
 */
export function interruptedToolResponses(session: Session): Event[] {
  return responsesTo(interruptedCalls(session));
}

/**
 * As `interruptedToolResponses`, except for calls that ADK runs when it continues with the stored answer to its question about them,
 * because it has not begun to.
 */
export function responsesBeforeRun(session: Session): Event[] {
  // Otherwise a run has begun since.
  const isStored = unrunAnswers(session).some((answer) => answer === newestOfUser(session));
  const isRun = ({ question }: InterruptedCall) => {
    const { invocationId } = question?.answer ?? {};
    // The Runner gives a new invocation to each message.
    const hasBegun = invocationId && invocationId !== question?.event?.invocationId;
    return isStored && question?.awaitsRun && !hasBegun;
  };
  return responsesTo(interruptedCalls(session).filter((call) => !isRun(call)));
}

const newestOfUser = ({ events }: Session) => events.findLast((event) => event.author === 'user' && !isAside(event));

/** @returns the events of the user whose answers the agent has not continued with. */
export function unrunAnswers(session: Session): Event[] {
  const answers = new Set(callsOfSession(session).unrun.map(({ answer }) => answer));
  return session.events.filter((event) => answers.has(event));
}

/** @returns the events of the user with which an interrupted run continues, or one that has not begun; none if every run has ended. */
export function unfinishedTurn(session: Session): Event[] {
  const answers = unrunAnswers(session);
  const newest = newestOfUser(session);
  if (answers.length > 0 || !newest) return answers;
  const last = session.events.findLast((event) => !isAside(event));
  const turn = session.events.slice(session.events.indexOf(newest));
  // ADK ends a run with a call that waits for its answer. Calls of earlier turns do not keep this one from going on.
  const waits = () => openLongRunningCalls(session).some(({ event }) => turn.includes(event));
  const isUnfinished = last === newest || (last && !isContinuation(last) && !waits());
  return isUnfinished && newest.content?.parts?.length ? [newest] : [];
}

function responsesTo(interrupted: readonly InterruptedCall[]): Event[] {
  return [...new Set(interrupted.map(({ event }) => event))].map((event) => {
    const calls = interrupted.filter((call) => call.event === event);
    const actions = createEventActions();
    for (const call of calls) {
      const { stateDelta, artifactDelta, ...asked } = call.actions ?? {};
      Object.assign(actions.stateDelta, stateDelta);
      Object.assign(actions.artifactDelta, artifactDelta);
      Object.assign(actions, asked);
    }
    return createEvent({
      invocationId: event.invocationId,
      author: event.author,
      branch: event.branch,
      // Otherwise the response would appear outside the workflow node that made the call.
      isolationScope: event.isolationScope,
      nodeInfo: event.nodeInfo && { path: event.nodeInfo.path },
      // Not earlier than the call, even if this host's clock is behind: compaction selects events by time.
      timestamp: Math.max(Date.now(), Number.isFinite(event.timestamp) ? event.timestamp : 0),
      actions,
      content: {
        role: 'user',
        parts: calls.map(({ id, name, response = { error: isExactlyOnce(event, id) ? UNDONE : INTERRUPTED } }) => ({
          functionResponse: { id, name, response },
        })),
      },
    });
  });
}
