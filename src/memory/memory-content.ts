import type { Event, MemoryEntry } from '@google/adk';
import type { Database } from '../database/calls/database.js';
import { saidIn, textSaidIn } from '../conversation/said.js';
import { isDate } from '../model/arguments.js';
import { decode, encode, isRecord } from '../model/json.js';
import type { SessionKey } from '../model/keys.js';
import type { MemoryKey, MemoryTexts } from './stored-memories.js';
import { LONGEST_TEXT, wordList, wordsOf } from './words.js';

/** Returns the text of an event to remember, if any. */
export type TextOfEvent = (event: Event) => string | undefined | Promise<string | undefined>;

/** The owner of memories. The user is empty for memories of the app. */
export interface MemoryOwner {
  appName: string;
  userId: string;
}

/** A memory to add: its words are a `wordList`, its data is JSON of `MemoryData`. */
export interface NewMemory extends MemoryKey, MemoryTexts {
  /** The text by which it is found. */
  text: string;
  /** In ms since 1970. */
  time: number;
  /** The name of the model that made `embedding`. */
  model?: string;
  /** The number of its event, if a projection adds it. */
  seq?: number;
  ttlMs: number | undefined;
}

/** The stored content of a memory. */
export interface MemoryData extends Pick<MemoryEntry, 'content' | 'author'> {
  customMetadata?: Record<string, unknown>;
  /** Whether `addMemory` has added it, and not an event. */
  isAdded?: true;
}

/** @returns undefined if there is no word by which it could be found. @throws UnserializableValueError. */
export function newMemory(data: MemoryData, rest: Omit<NewMemory, 'text' | 'words' | 'data'>): NewMemory | undefined {
  const text = textSaidIn(data.content);
  const words = wordsOf(text);
  if (words.length === 0) return undefined;
  return { ...rest, text, words: wordList(words), data: encode(data, 'memory').json };
}

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
  // More is a file rather than something that was said, and with its words and its vector it would not fit into every server's
  // packet: a projection would end there for all users. Another program may store an author or a role of any length.
  if (textSaidIn(content).length + encode({ author, role }, 'memory').json.length > LONGEST_TEXT) return undefined;
  const data: MemoryData = { content, ...(author && { author }), ...(customMetadata && { customMetadata }) };
  return newMemory(data, { ...rest, memoryId: event.id, time: timeOf(event.timestamp) });
}

/** An event that was made by hand may have no time. */
const timeOf = (timestamp: unknown): number => (isDate(timestamp) ? timestamp : Date.now());

/** @returns what the host remembers of an event. */
export async function saidByHost(database: Database, event: Event, text: TextOfEvent): Promise<string[]> {
  if (event.partial) return [];
  const late = (ms: number) => new Error(`text did not answer within ${ms} ms.`);
  const own = await database.within(Promise.resolve(text(event)), late);
  return own === undefined ? [] : [own];
}

/** @returns what is remembered of an event: its texts, or what was said aloud, without thoughts, calls, responses and files (contract Q13). */
export function saidByEvent({ partial, content, inputTranscription, outputTranscription }: Event): string[] {
  if (partial) return [];
  const written = saidIn(content);
  return written.length > 0 ? written : saidIn({ parts: [inputTranscription ?? {}, outputTranscription ?? {}] });
}

const QUESTION_MARK = /[?\uff1f\u061f\u055e\u1367\u037e]|\p{Script=Greek};/u;
const MARKS = /\p{M}+/gu;

/**
 * Whether a memory with the words of a question is that question, asked before (contract Q7): a projection also remembers the message
 * that a search is for. A statement with the same words is its answer.
 */
export function repeatsQuestion({ content, isAdded }: MemoryData, question: string): boolean {
  const text = textSaidIn(content);
  return !isAdded && (QUESTION_MARK.test(text.replace(MARKS, '')) || bare(text) === bare(question));
}

const bare = (text: string) => text.replace(/\s+/g, ' ').trim().toLowerCase();

/** @returns undefined if the text is not from this package. */
export function memoryDataOf(json: string): MemoryData | undefined {
  const value = decode(json)?.value;
  return isRecord(value) && isRecord(value['content']) ? (value as unknown as MemoryData) : undefined;
}
