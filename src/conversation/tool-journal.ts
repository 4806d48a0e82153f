import { isDeepStrictEqual } from 'node:util';
import { BasePlugin, FunctionTool, type Context, type InvocationContext } from '@google/adk';
import { object, strings } from '../model/arguments.js';
import { InvalidArgumentError } from '../model/errors.js';
import { processWide } from '../model/process-wide.js';
import { callsOf } from './calls.js';
import { isShared, ownCall } from './own-call.js';
import { markExactlyOnce, resultId, toolResultEvent } from './tool-results.js';

export interface ToolJournalOptions {
  /**
   * The names of tools that do everything they do in the `work` of `exactlyOnce`. A call of them that a crash interrupted is
   * answered with "did not take effect" if its result is not stored. Nobody checks it: do not name a tool that also does something
   * elsewhere.
   */
  exactlyOnce?: readonly string[];
}

type OnEvent = Parameters<BasePlugin['onEventCallback']>[0];
type AfterTool = Parameters<BasePlugin['afterToolCallback']>[0];

/** How long a tool waits until its call is stored, in ms. */
const STORED_MS = 30_000;

const checkOptions = object<ToolJournalOptions>({ exactlyOnce: strings });

/**
 * Makes a plugin that stores what a tool returned as soon as it returns, if its model event has several calls. ADK stores all
 * responses of such an event together after its last tool, so without it a crash in one tool also loses what the others returned
 * (contract H6). `interruptedToolResponses` finds the results.
 *
 * ```ts
 * const runner = new Runner({ appName, agent, ...adkServices(orm.em), plugins: [toolJournal()] });
 * ```
 *
 * It appends one event for each of these calls, with the `sessionService` of the run, and so with its lease. The event has no
 * content: no model, message or memory shows it. A call that is alone costs nothing, unless a user has confirmed it: ADK runs
 * such calls together. If an append fails, the run ends with its error. A tool starts when its call is stored, also in a
 * workflow; if that takes 30 s, because the reader of the run has stopped, the run ends with an InvalidArgumentError.
 *
 * Make it the first plugin: ADK does not call the plugins after one that returns another result. It stores what the tool itself
 * returned, so results that a later plugin or callback replaces come back unchanged after a crash. The runner of an `AgentTool` has no
 * plugins.
 *
 * @throws InvalidArgumentError if an option is unknown or its value is invalid.
 */
export function toolJournal(options: ToolJournalOptions = {}): BasePlugin {
  return new ToolJournal(checkOptions(options, 'The options of toolJournal').exactlyOnce ?? []);
}

const NAME = 'adk_mikro_orm_tool_journal';

/** Without `instanceof`: it may be of another copy of this package. A Runner has one plugin of a name. */
export const isToolJournal = ({ name }: BasePlugin): boolean => name === NAME;

/**
 * Why a result could not be stored, by the session of the run and by its signal. ADK itself takes the error for one of the model, and
 * continues. Shared: `runTurn` may be of another copy than the journal.
 */
const failures = processWide('failures of tool journals', () => new WeakMap<object, unknown>());

/** @returns the error that ends the run with this signal, since ADK wraps it in one without its class; undefined if none does. */
export const journalFailure = (signal: AbortSignal): unknown => failures.get(signal);

/** Ends the run. */
function failed({ session, abortSignal }: InvocationContext, failure: unknown): unknown {
  for (const each of [session, abortSignal ?? session]) failures.set(each, failure);
  return failure;
}

const notStored = () =>
  new InvalidArgumentError(
    `A tool was not run, because its call was not stored within ${STORED_MS / 1000} s: the reader of the run has not taken its next ` +
      'event, or has left. Read the events without waiting that long.',
  );

class ToolJournal extends BasePlugin {
  readonly #exactlyOnce: readonly string[];
  readonly #errors = new WeakMap<Context, Error>();

  constructor(exactlyOnce: readonly string[]) {
    super(NAME);
    this.#exactlyOnce = exactlyOnce;
  }

  /** With the call itself, since the process that recovers may have other tools. */
  override onEventCallback({ invocationContext, event }: OnEvent): Promise<undefined> {
    this.#check(invocationContext);
    const names: readonly unknown[] = this.#exactlyOnce;
    const calls = callsOf(event).filter(({ name }) => names.includes(name));
    const ids = calls.map(({ id }) => id).filter((id) => typeof id === 'string');
    if (calls.length > 0) markExactlyOnce(event, ids);
    return Promise.resolve(undefined);
  }

  override beforeModelCallback({ callbackContext }: { callbackContext: Context }): Promise<undefined> {
    this.#check(callbackContext.invocationContext);
    return Promise.resolve(undefined);
  }

  /** No tool does anything before its call is stored. */
  override async beforeToolCallback({ toolContext }: { toolContext: Context }): Promise<undefined> {
    const { invocationContext, toolConfirmation } = toolContext;
    const { eventQueue, abortSignal } = invocationContext;
    const event = await ownCall(toolContext, STORED_MS);
    this.#check(invocationContext);
    // Otherwise ADK runs a tool for a stored call, whose event need not be loaded.
    if (event || !eventQueue || toolConfirmation) return;
    abortSignal?.throwIfAborted();
    throw failed(invocationContext, notStored());
  }

  override onToolErrorCallback({ toolContext, error }: { toolContext: Context; error: Error }): Promise<undefined> {
    this.#errors.set(toolContext, error);
    return Promise.resolve(undefined);
  }

  override async afterToolCallback({ tool, toolContext, result }: AfterTool): Promise<undefined> {
    const { actions, functionCallId = '', invocationContext, toolConfirmation } = toolContext;
    const { session, sessionService } = invocationContext;
    const error = this.#errors.get(toolContext);
    const outcome = result ?? (error ? { error: error.message } : result);
    const isWaiting =
      functionCallId in actions.requestedToolConfirmations ||
      functionCallId in actions.requestedAuthConfigs ||
      (tool.isLongRunning && (outcome === undefined || outcome === null));
    if (isWaiting || !functionCallId || !sessionService) return;
    // Such a tool may have thrown something other than an Error. ADK does not pass that to plugins.
    if (outcome === undefined && tool.runAsync !== FunctionTool.prototype.runAsync) return;
    const event = await ownCall(toolContext, 0);
    if (!event || isShared(event, functionCallId)) return;
    // After confirmations, ADK runs calls of several events together.
    if (callsOf(event).length === 1 && !toolConfirmation) return;
    const made = toolResultEvent(toolContext, outcome);
    const id = resultId(event, toolContext);
    const stored = session.events.findLast((each) => each.id === id);
    if (isDeepStrictEqual(stored?.customMetadata, made.customMetadata)) return;
    try {
      await sessionService.appendEvent({ session, event: made });
    } catch (failure) {
      throw failed(invocationContext, failure);
    }
  }

  /** @throws the error of an earlier append, so that nothing continues without a record. */
  #check({ session }: InvocationContext): void {
    if (failures.has(session)) throw failures.get(session);
  }
}
