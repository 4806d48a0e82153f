import { isRecord } from './objects.js';

/** What an event of anybody's may have, such as one that another program has stored. */
export interface LooseEvent {
  author?: unknown;
  content?: unknown;
  branch?: unknown;
  longRunningToolIds?: unknown;
  errorCode?: unknown;
}

/** The parts of an event's content that are objects, as all of ADK's are. */
export function partsOf({ content }: LooseEvent): Record<string, unknown>[] {
  const parts: unknown = isRecord(content) ? content['parts'] : undefined;
  return Array.isArray(parts) ? parts.filter(isRecord) : [];
}

/**
 * Whether a turn of the conversation begins with an event: the user says something in it. An answer of the user to a call
 * belongs to the turn it comes in, and what has no content is shown to no model.
 */
export function beginsTurn(event: LooseEvent): boolean {
  const parts = event.author === 'user' ? partsOf(event) : [];
  return parts.length > 0 && !parts.some(({ functionResponse }) => isRecord(functionResponse));
}
