import type { Event, MemoryEntry } from '@google/adk';
import { isDate } from '../model/arguments.js';
import { decode, encode } from '../model/event-codec.js';
import type { SessionKey } from '../model/keys.js';
import { isRecord } from '../model/objects.js';
import type { MemoryKey, MemoryTexts } from '../transfer/stored-memories.js';
import { wordList, wordsOf } from './words.js';

/** What an event says that is to be remembered, if anything. */
export type TextOfEvent = (event: Event) => string | undefined | Promise<string | undefined>;

/** Whose memories are meant; the user is empty for those of the app. */
export interface MemoryOwner {
  appName: string;
  userId: string;
}

/** A memory as it is added: its words are a `wordList`, its data JSON of `MemoryData`. */
export interface NewMemory extends MemoryKey, MemoryTexts {
  /** What it is found by. */
  text: string;
  /** In ms since 1970. */
  time: number;
  /** What has made `embedding`. */
  model?: string;
  /** The number of its event, if a projection adds it. */
  seq?: number;
  ttlMs: number | undefined;
}

/** What is stored of a memory in addition to its key and its words. */
export interface MemoryData extends Pick<MemoryEntry, 'content' | 'author'> {
  customMetadata?: Record<string, unknown>;
}

/** @returns undefined for what says nothing that could be found. @throws UnserializableValueError. */
export function newMemory(
  { content, author, customMetadata }: MemoryData,
  rest: Omit<NewMemory, 'text' | 'words' | 'data'>,
): NewMemory | undefined {
  const text = textOf(content);
  const words = wordsOf(text);
  if (words.length === 0) return undefined;
  const data: MemoryData = {
    content,
    ...(author !== undefined && { author }),
    ...(customMetadata && { customMetadata }),
  };
  return { ...rest, text, words: wordList(words), data: encode(data, 'memory').json };
}

/**
 * In characters. More is a file rather than something that was said, and with its words and its vector it would not fit into every
 * server's packet: a projection would end there for all users.
 */
const MOST_REMEMBERED = 100_000;

/**
 * Reads the event at once.
 *
 * @param said its texts, or what the host remembers instead.
 * @returns undefined if an event has nothing to remember, or too much.
 */
export function memoryOfEvent(
  event: Event,
  said: readonly string[],
  { customMetadata, ...rest }: Pick<NewMemory & MemoryData, keyof SessionKey | 'seq' | 'ttlMs' | 'customMetadata'>,
): NewMemory | undefined {
  if (said.length === 0) return undefined;
  const { author } = event;
  const { role } = event.content ?? {};
  const content = { ...(role !== undefined && { role }), parts: said.map((text) => ({ text })) };
  if (textOf(content).length > MOST_REMEMBERED) return undefined;
  const data: MemoryData = { content, ...(author && { author }), ...(customMetadata && { customMetadata }) };
  return newMemory(data, { ...rest, memoryId: event.id, time: timeOf(event.timestamp) });
}

/** Events that are made by hand may lack it. */
const timeOf = (timestamp: unknown): number => (isDate(timestamp) ? timestamp : Date.now());

/** @returns what the host remembers of an event. */
export async function saidByHost(event: Event, text: TextOfEvent): Promise<string[]> {
  const own = event.partial ? undefined : await text(event);
  return own === undefined ? [] : [own];
}

/** @returns what is remembered of an event: its texts, without thoughts, calls, responses and files (contract Q13). */
export const saidByEvent = ({ partial, content }: Event): string[] => (partial ? [] : saidIn(content));

/** An event may have been made by any program: if it were an error, it would end a projection for all users. */
function saidIn(content: Event['content']): string[] {
  const parts: unknown = content?.parts;
  if (!Array.isArray(parts)) return [];
  return parts.flatMap((part: unknown) => {
    const { text, thought } = isRecord(part) ? part : {};
    return typeof text === 'string' && text !== '' && !thought ? [text] : [];
  });
}

/** What a memory is searched by. */
export const textOf = (content: MemoryEntry['content']): string => saidIn(content).join('\n');

/** @returns undefined if it is not what was stored. */
export function memoryDataOf(json: string): MemoryData | undefined {
  const value = decode(json)?.value;
  return isRecord(value) && isRecord(value['content']) ? (value as unknown as MemoryData) : undefined;
}
