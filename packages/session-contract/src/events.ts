import type { Event } from '@google/adk';
import type { EventParams } from './rule.js';

/** 0, 1, … n - 1. */
export const range = (n: number) => Array.from({ length: n }, (_, i) => i);

/** An event that says one word. */
export const saying = (text: string): EventParams => ({ content: { role: 'model', parts: [{ text }] } });

export const idsOf = ({ events }: { events: readonly Event[] }) => events.map(({ id }) => id);

export const textsOf = ({ events }: { events: readonly Event[] }) =>
  events.map(({ content }) => content?.parts?.[0]?.text);
