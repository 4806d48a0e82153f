import { Runner, type BasePlugin, type Event, type RunnerConfig } from '@google/adk';
import { hostname } from 'node:os';
import { responsesBeforeRun, unfinishedTurn, unrunAnswers } from './conversation/recovery.js';
import { isToolJournal, journalFailure, toolJournal } from './conversation/tool-journal.js';
import { tryToRelease, type AcquireOptions } from './leases/session-leases.js';
import { aBoolean, aRecord, aString, aWait, anAbortSignal, object, objects } from './model/arguments.js';
import { InvalidArgumentError } from './model/errors.js';
import type { SessionKey } from './model/keys.js';
import type { AdkServices } from './services.js';
import { messageOf } from './sessions/resumed.js';

/** What `runTurn` runs. */
export interface RunTurnRequest
  extends
    Partial<AcquireOptions>,
    Pick<Parameters<Runner['runAsync']>[0], 'stateDelta' | 'runConfig' | 'customMetadata'> {
  /** The session; `newMessage` creates it if there is none. */
  key: SessionKey;
  agent: NonNullable<RunnerConfig['agent']>;
  newMessage?: Event['content'] | undefined;
  /** Stops the run, or the wait for the lease. */
  signal?: AbortSignal | undefined;
  /** The plugins of the Runner, after `toolJournal()`, unless that is among them. */
  plugins?: BasePlugin[];
  resumabilityConfig?: RunnerConfig['resumabilityConfig'];
}

const checkRequest = object<RunTurnRequest>(
  {
    ...{ key: aRecord, agent: aRecord, newMessage: aRecord, signal: anAbortSignal, plugins: objects },
    ...{ stateDelta: aRecord, runConfig: aRecord, customMetadata: aRecord, resumabilityConfig: aRecord },
    ...{ holder: aString, waitMs: aWait, autoCreateSession: aBoolean },
  },
  'key',
  'agent',
);

/**
 * Runs a turn of a session, with one worker at a time, whatever an earlier worker has left (contract H7): takes the session's lease,
 * answers the calls that a crash interrupted, continues with answers that somebody has stored, and then runs the agent with
 * `newMessage`.
 *
 * ```ts
 * for await (const event of runTurn(services, { key, agent, newMessage })) console.log(stringifyContent(event));
 * ```
 *
 * Without `newMessage` it continues what is stored: answers of `findAnsweredCalls`, a message that no run has begun with, or a run
 * that a crash has ended. If there is nothing to continue, it does nothing.
 *
 * @param services those of `adkServices`; the Runner gets all of them.
 * @param request `holder` is the host name and process id by default; `waitMs` as for `SessionLeases.acquire`.
 * @returns the events of the runs, as `runAsync` gives them. They end early if `signal` fires. If you stop reading, the run is aborted.
 * @throws InvalidArgumentError if the request is invalid, or has `stateDelta` without `newMessage`.
 * @throws SessionNotFoundError if there is no such session, without `newMessage` or with `autoCreateSession: false`.
 * @throws LeaseHeldError if another worker still runs the session after `waitMs`.
 * @throws LeaseLostError if the lease is lost; nothing of the run is written after that.
 * @throws CallAnsweredError with `onAnsweredCall: 'reject'`, if `newMessage` answers a call that does not wait.
 */
export async function* runTurn(services: AdkServices, request: RunTurnRequest): AsyncGenerator<Event, void> {
  const {
    key,
    agent,
    newMessage,
    stateDelta,
    signal,
    plugins = [],
    resumabilityConfig,
    ...rest
  } = checkRequest(request, 'The request of runTurn');
  if (stateDelta && !newMessage)
    throw new InvalidArgumentError(
      'The stateDelta of runTurn is stored with newMessage, and there is none. Nothing was run.',
    );
  // To continue a session that was deleted meanwhile would create it again, which purges a soft-deleted one.
  const autoCreates = newMessage !== undefined;
  const { holder = `${hostname()}:${process.pid}`, waitMs = 0, autoCreateSession = autoCreates, ...parameters } = rest;
  const waiting = services.leases.acquire(key, { holder, waitMs, signal, autoCreateSession });
  const lease = await waiting.catch((error: unknown) => {
    if (!signal?.aborted) throw error;
  });
  if (!lease) return;
  const { session: ofLease, sessionService } = lease;
  const left = new AbortController();
  const abortSignal = AbortSignal.any([...(signal ? [signal] : []), lease.signal, left.signal]);
  const run = (
    service: typeof sessionService,
    message: Pick<Parameters<Runner['runAsync']>[0], 'newMessage' | 'stateDelta'>,
  ) =>
    new Runner({
      ...services,
      ...{ appName: ofLease.appName, agent, sessionService: service, resumabilityConfig },
      plugins: plugins.some(isToolJournal) ? plugins : [toolJournal(), ...plugins],
    }).runAsync({ ...parameters, ...ofLease, ...message, abortSignal });
  try {
    // Read under the lease: nobody else runs the session from here on.
    const session = await sessionService.getOrCreateSession(ofLease);
    const events = responsesBeforeRun(session);
    if (events.length > 0) await sessionService.appendEvents({ session, events });
    const stored = newMessage ? unrunAnswers(session) : unfinishedTurn(session);
    if (stored.length > 0)
      yield* untilLeft(run(sessionService.resuming(stored), { newMessage: messageOf(stored) }), left);
    if (newMessage && !abortSignal.aborted) yield* untilLeft(run(sessionService, { newMessage, stateDelta }), left);
    // A Runner whose signal has fired ends without an error.
    lease.signal.throwIfAborted();
  } catch (error) {
    throw journalFailure(abortSignal) ?? error;
  } finally {
    await tryToRelease(lease);
  }
}

/** A Workflow runs on after its reader has left, and would wait for calls to be stored that nobody stores. */
async function* untilLeft(events: AsyncIterable<Event>, left: AbortController): AsyncGenerator<Event, void> {
  for await (const event of events) {
    let isTaken = false;
    try {
      yield event;
      isTaken = true;
    } finally {
      if (!isTaken) left.abort();
    }
  }
}
