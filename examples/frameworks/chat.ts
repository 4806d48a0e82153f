import {
  SessionNotFoundError,
  toMessages,
  type Message,
  type MikroOrmSessionService,
  type SessionKey,
} from 'adk-mikro-orm';

const PAGE_SIZE = 30;

/** A part of a conversation, for `chat-page.ts`. */
export interface ChatPart {
  messages: Message[];
  /** The numbers of its first and last event. */
  first: number;
  last: number;
  hasOlder: boolean;
}

/**
 * @param query `before` or `after`: the number of an event that the page has. Without them, the newest events are returned.
 * @returns undefined if a parameter is not a number.
 */
export async function chatPart(
  service: MikroOrmSessionService,
  key: SessionKey,
  query: URLSearchParams,
): Promise<ChatPart | undefined> {
  const [before, after] = ['before', 'after'].map((name) => Number(query.get(name) ?? -1));
  if (!Number.isSafeInteger(before) || !Number.isSafeInteger(after)) return undefined;
  const asked = { limit: PAGE_SIZE, ...(before! > 0 && { before: before! }), ...(after! >= 0 && { after: after! }) };
  try {
    const page = await service.readEvents(key, asked);
    const first = page.events[0]?.seq ?? page.lastSeq + 1;
    const last = page.events.at(-1)?.seq ?? page.lastSeq;
    return { messages: toMessages(page), first, last, hasOlder: first > page.firstSeq };
  } catch (error) {
    // The first message creates the session.
    if (error instanceof SessionNotFoundError) return { messages: [], first: 1, last: 0, hasOlder: false };
    throw error;
  }
}
