import { isRecord } from './json.js';

type EventData = Readonly<Record<string, unknown>>;

/** The prefix of keys in `customMetadata` that ADK itself writes and trusts. */
export const INTERNAL_PREFIX = '__adk_internal_';

/** @returns a copy without such keys; the same object if it has none. */
export function withoutInternalMetadata(event: EventData): EventData {
  const { customMetadata, ...rest } = event;
  if (!isRecord(customMetadata)) return event;
  const kept = Object.entries(customMetadata).filter(([key]) => !key.startsWith(INTERNAL_PREFIX));
  if (kept.length === Object.keys(customMetadata).length) return event;
  return kept.length === 0 ? rest : { ...event, customMetadata: Object.fromEntries(kept) };
}
