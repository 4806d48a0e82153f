import type { MemoryEntry } from '@google/adk';
import { partsOf } from '../model/turn.js';

/** @returns the texts of a content, without thoughts, calls, responses and files. It may have any shape. */
export const saidIn = (content: MemoryEntry['content'] | undefined): string[] =>
  partsOf({ content }).flatMap(({ text, thought }) =>
    typeof text === 'string' && text !== '' && !thought ? [text] : [],
  );

/** @returns the text by which a memory is found. */
export const textSaidIn = (content: MemoryEntry['content']): string => saidIn(content).join('\n');
