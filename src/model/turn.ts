import { isRecord } from './objects.js';

/**
 * Whether a turn of the conversation begins with an event: the user says something in it. An answer of the user to a call
 * belongs to the turn it comes in, and what has no content is shown to no model.
 *
 * @param event as JSON has it.
 */
export function beginsTurn({ author, content }: { author?: unknown; content?: unknown }): boolean {
  const parts: unknown = isRecord(content) ? content['parts'] : undefined;
  return (
    author === 'user' &&
    Array.isArray(parts) &&
    parts.length > 0 &&
    !parts.some((part: unknown) => isRecord(part) && isRecord(part['functionResponse']))
  );
}
