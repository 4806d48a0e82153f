import { BasePlugin, getFunctionCalls, type BaseTool, type Context, type Event } from '@google/adk';
import { object, strings } from '../model/arguments.js';
import { runningCall } from './recovery.js';
import { markExactlyOnce, toolResultEvent } from './tool-results.js';

export interface ToolJournalOptions {
  /**
   * The names of tools that do everything they do in the `work` of `exactlyOnce`. A call of them that a crash interrupted is
   * answered with "did not take effect" if its result is not stored. Nobody checks it: do not name a tool that also does something
   * elsewhere.
   */
  exactlyOnce?: readonly string[];
}

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
 * content: no model, message or memory shows it. A call that is alone costs nothing. If an append fails, the run ends as if the
 * response could not be stored.
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

export const isToolJournal = (plugin: BasePlugin): boolean => plugin instanceof ToolJournal;

class ToolJournal extends BasePlugin {
  readonly #exactlyOnce: readonly string[];
  readonly #errors = new WeakMap<Context, Error>();

  constructor(exactlyOnce: readonly string[]) {
    super('adk_mikro_orm_tool_journal');
    this.#exactlyOnce = exactlyOnce;
  }

  /** With the call itself, since the process that recovers may have other tools. */
  override onEventCallback({ event }: { event: Event }): Promise<undefined> {
    const calls = getFunctionCalls(event).filter(({ name = '' }) => this.#exactlyOnce.includes(name));
    if (calls.length > 0)
      markExactlyOnce(
        event,
        calls.map(({ id = '' }) => id),
      );
    return Promise.resolve(undefined);
  }

  override onToolErrorCallback({ toolContext, error }: { toolContext: Context; error: Error }): Promise<undefined> {
    this.#errors.set(toolContext, error);
    return Promise.resolve(undefined);
  }

  override async afterToolCallback({
    tool,
    toolContext,
    result,
  }: {
    tool: BaseTool;
    toolContext: Context;
    result: unknown;
  }): Promise<undefined> {
    const { actions, functionCallId = '', invocationContext } = toolContext;
    const { session, sessionService } = invocationContext;
    const error = this.#errors.get(toolContext);
    const outcome = result ?? (error ? { error: error.message } : result);
    const isWaiting =
      functionCallId in actions.requestedToolConfirmations ||
      functionCallId in actions.requestedAuthConfigs ||
      (tool.isLongRunning && (outcome === undefined || outcome === null));
    if (isWaiting || !functionCallId || !sessionService) return;
    const event = runningCall(toolContext)?.event;
    // The event of the call may be missing: a workflow runs tools while it is being appended.
    if (event && getFunctionCalls(event).length === 1) return;
    await sessionService.appendEvent({ session, event: toolResultEvent(toolContext, outcome) });
  }
}
