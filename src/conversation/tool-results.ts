import { createEvent, type Context, type Event } from '@google/adk';
import { createHash } from 'node:crypto';
import { withoutUndefined, isRecord, recordOf } from '../model/json.js';
import { isTemporary } from '../model/state.js';
import type { LooseEvent } from '../model/turn.js';

/** Names in `customMetadata`. */
const RESULT = 'adk_mikro_orm_tool_result';
const EXACTLY_ONCE = 'adk_mikro_orm_exactly_once';

type Actions = Event['actions'];

/** What a tool may ask of its run. The record of a result has it beside the deltas. */
const ASKED = ['transferToAgent', 'escalate', 'skipSummarization'] as const;

/** What a tool has returned before ADK stores the response to its call (contract H6). */
export interface ToolResult {
  /** The id of the call. */
  id: string;
  result: unknown;
  /** The result as ADK gives it to the model. */
  response: Record<string, unknown>;
  actions: Pick<Actions, 'stateDelta' | 'artifactDelta' | (typeof ASKED)[number]>;
}

/** Makes the event that keeps a result. It has no content, so ADK shows it to no model. */
export function toolResultEvent(toolContext: Context, result: unknown, id?: string): Event {
  const { functionCallId, actions, invocationContext } = toolContext;
  const { invocationId, branch, agent } = invocationContext;
  const stateDelta = filled(Object.entries(actions.stateDelta).filter(([key]) => !isTemporary(key)));
  const artifactDelta = filled(Object.entries(actions.artifactDelta));
  const asked = Object.fromEntries(ASKED.map((name) => [name, actions[name]]));
  const stored = { id: functionCallId, result, stateDelta, artifactDelta, ...asked };
  return createEvent({
    ...(id !== undefined && { id }),
    ...{ invocationId, author: agent?.name ?? '', branch, customMetadata: { [RESULT]: withoutUndefined(stored) } },
  });
}

/** The id of the event that `exactlyOnce` stores. Not of the call's id alone: models number their calls from the beginning in each turn. */
export const resultId = (callEvent: Event, { functionCallId }: Context): string =>
  createHash('sha256')
    .update(JSON.stringify([callEvent.id, functionCallId]))
    .digest('hex');

/** @returns undefined for any other event. */
export function toolResultOf({ author, content, customMetadata }: LooseEvent): ToolResult | undefined {
  const stored = isRecord(customMetadata) ? customMetadata[RESULT] : undefined;
  // Nobody may answer a call by the metadata of a message.
  if (author === 'user' || content || !isRecord(stored) || typeof stored['id'] !== 'string') return undefined;
  const { id, result, stateDelta, artifactDelta, transferToAgent, escalate, skipSummarization } = stored;
  const actions = {
    stateDelta: recordOf(stateDelta),
    artifactDelta: recordOf(artifactDelta) as Actions['artifactDelta'],
    ...(typeof transferToAgent === 'string' && { transferToAgent }),
    ...(escalate === true && { escalate }),
    ...(skipSummarization === true && { skipSummarization }),
  };
  const response = isRecord(result) ? result : Array.isArray(result) ? { results: result } : { result };
  return { id, result, response, actions };
}

/** Notes in the event of calls which of them are of `exactlyOnce` tools. */
export function markExactlyOnce(event: Event, ids: readonly string[]): void {
  event.customMetadata = { ...event.customMetadata, [EXACTLY_ONCE]: ids };
}

export function isExactlyOnce({ customMetadata }: LooseEvent, id: string): boolean {
  const ids = isRecord(customMetadata) ? customMetadata[EXACTLY_ONCE] : undefined;
  return Array.isArray(ids) && ids.includes(id);
}

const filled = <T>(entries: [string, T][]) => (entries.length > 0 ? Object.fromEntries(entries) : undefined);
