import { isRecord, recordOf } from './json.js';

/** An event from any program: its properties may have any type. */
export interface LooseEvent {
  actions?: unknown;
  author?: unknown;
  content?: unknown;
  customMetadata?: unknown;
  branch?: unknown;
  longRunningToolIds?: unknown;
  errorCode?: unknown;
  errorMessage?: unknown;
  inputTranscription?: unknown;
  invocationId?: unknown;
  nodeInfo?: unknown;
  output?: unknown;
  outputTranscription?: unknown;
  partial?: unknown;
}

/** @returns the parts of an event's content, without those that are not objects. */
export function partsOf({ content }: LooseEvent): Record<string, unknown>[] {
  const parts: unknown = isRecord(content) ? content['parts'] : undefined;
  return Array.isArray(parts) ? parts.filter(isRecord) : [];
}

/**
 * Whether an event begins a turn of the conversation: the user says something in it. The user's answer to a call belongs to the
 * current turn, and so does an event without content, which ADK does not send to models.
 */
export function beginsTurn(event: LooseEvent): boolean {
  const parts = event.author === 'user' ? partsOf(event) : [];
  return parts.length > 0 && !parts.some(({ functionResponse }) => isRecord(functionResponse));
}

/**
 * @returns what an agent's compaction has summed up, and until which `timestamp` of events; undefined if the event is no summary. ADK
 *   2.0 writes it into the event, later releases into `actions`.
 */
export function summaryOf(event: unknown): { startTime: unknown; endTime: unknown; content: unknown } | undefined {
  const { actions, isCompacted, startTime, endTime, compactedContent } = recordOf(event);
  const { compaction } = recordOf(actions);
  if (isCompacted === true) return { startTime, endTime, content: compactedContent };
  if (!isRecord(compaction)) return undefined;
  const { startTimestamp, endTimestamp, compactedContent: content } = compaction;
  return { startTime: startTimestamp, endTime: endTimestamp, content };
}
