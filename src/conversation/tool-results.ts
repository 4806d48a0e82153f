import { createEvent, type Context, type Event } from '@google/adk';
import { given, isRecord, recordOf } from '../model/json.js';
import { isTemporary } from '../model/state.js';
import type { LooseEvent } from '../model/turn.js';

/** Names in `customMetadata`. */
const RESULT = 'adk_mikro_orm_tool_result';
const EXACTLY_ONCE = 'adk_mikro_orm_exactly_once';

type Deltas = Pick<Event['actions'], 'stateDelta' | 'artifactDelta'>;

/** What a tool has returned before ADK stores the response to its call (contract H6). */
export interface ToolResult {
  /** The id of the call. */
  id: string;
  result: unknown;
  /** The result as ADK gives it to the model. */
  response: Record<string, unknown>;
  actions: Deltas;
}

/** Makes the event that keeps a result. It has no content, so ADK shows it to no model. */
export function toolResultEvent(toolContext: Context, result: unknown, id?: string): Event {
  const { functionCallId, actions, invocationContext } = toolContext;
  const { invocationId, branch, agent } = invocationContext;
  const stateDelta = filled(Object.entries(actions.stateDelta).filter(([key]) => !isTemporary(key)));
  const artifactDelta = filled(Object.entries(actions.artifactDelta));
  const stored = { id: functionCallId, result, stateDelta, artifactDelta };
  return createEvent({
    ...(id !== undefined && { id }),
    ...{ invocationId, author: agent?.name ?? '', branch, customMetadata: { [RESULT]: given(stored) } },
  });
}

/** @returns undefined for any other event. */
export function toolResultOf({ author, content, customMetadata }: LooseEvent): ToolResult | undefined {
  const stored = isRecord(customMetadata) ? customMetadata[RESULT] : undefined;
  // Nobody may answer a call by the metadata of a message.
  if (author === 'user' || content || !isRecord(stored) || typeof stored['id'] !== 'string') return undefined;
  const { id, result, stateDelta, artifactDelta } = stored;
  const actions = {
    stateDelta: recordOf(stateDelta),
    artifactDelta: recordOf(artifactDelta) as Deltas['artifactDelta'],
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
