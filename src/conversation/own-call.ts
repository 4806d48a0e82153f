import type { Context, Event } from '@google/adk';
import { now } from '../model/clock.js';
import { isRecord } from '../model/json.js';
import { processWide } from '../model/process-wide.js';
import { pause } from '../model/signals.js';
import { partsOf } from '../model/turn.js';
import { callsOf } from './calls.js';
import { runningCall } from './recovery.js';

/** How often a tool looks for its call, in ms. */
const LOOK_MS = 5;

/** The batch of calls that each event was found for: a model may give the same ids to every batch. Shared: so may any copy's tools. */
const batches = processWide('batches of calls', () => new WeakMap<Event, object>());

/**
 * Waits until the session has the call that a tool runs for. A workflow starts tools before the events of their calls are appended:
 * that is done when whoever iterates over the run takes the next event.
 *
 * @returns the event of the call; undefined if it is not there in time, or the run is aborted.
 */
export async function ownCall(toolContext: Context, waitMs: number): Promise<Event | undefined> {
  const { eventQueue, abortSignal } = toolContext.invocationContext;
  // Without a queue, or after the user's answer, ADK runs a tool for a call that is stored.
  if (!eventQueue || toolContext.toolConfirmation) return runningCall(toolContext)?.event;
  const end = now() + waitMs;
  for (;;) {
    const event = newestCall(toolContext, eventQueue);
    if (event || abortSignal?.aborted || now() >= end) return event;
    await pause(LOOK_MS, abortSignal);
  }
}

function newestCall({ functionCallId, invocationContext: run }: Context, batch: object): Event | undefined {
  const isOwn = ({ id }: Record<string, unknown>) => id === functionCallId;
  const concerns = (event: Event) =>
    event.invocationId === run.invocationId &&
    event.branch === run.branch &&
    partsOf(event)
      .flatMap(({ functionCall, functionResponse }) => [functionCall, functionResponse].filter(isRecord))
      .some(isOwn);
  const event = run.session.events.findLast(concerns);
  // An earlier call, which may even have a response.
  if (!event || !callsOf(event).some(isOwn) || (batches.get(event) ?? batch) !== batch) return undefined;
  batches.set(event, batch);
  return event;
}

/** Whether an event has several calls with the id: a result with this id may belong to any of them. */
export const isShared = (event: Event, id: string): boolean =>
  callsOf(event).filter((call) => call['id'] === id).length > 1;
