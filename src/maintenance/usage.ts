import { callsOf } from '../conversation/calls.js';
import { NO_TOKENS, addTokens, tokensOf } from '../conversation/tokens.js';
import type { LogEntry } from '../log/entries.js';
import { DAY_MS, dayOf } from '../model/days.js';
import type { UsageOptions } from './options.js';

export interface Usage {
  /** By app and group, in their order. */
  rows: {
    appName: string;
    /** A day in UTC such as `2026-11-26`, the id of a user, a model or an agent, as `by` says. Empty if the events name none. */
    group: string;
    events: number;
    /** The number of function calls. */
    toolCalls: number;
    /** Sent to the models, including cached content and results of the models' own tools. */
    inputTokens: number;
    /** The part of `inputTokens` that was cached. */
    cachedTokens: number;
    /** Answered by the models, without thoughts. */
    outputTokens: number;
    thoughtsTokens: number;
  }[];
  /** How many events could not be read. They are counted in no row. */
  unreadable: number;
}

type ReadEvent = Pick<LogEntry, 'userId'> & { event: NonNullable<LogEntry['event']> };

const GROUPS: Readonly<Record<UsageOptions['by'], (entry: ReadEvent) => unknown>> = {
  day: ({ event }) => dayOf(event.timestamp),
  user: ({ userId }) => userId,
  model: ({ event }) => event.modelVersion,
  agent: ({ event }) => event.author,
};

/** See `SessionMaintenance.usage`. @param entries none that is older than the day before `from`, except unreadable ones. */
export async function usageIn(
  entries: AsyncIterable<LogEntry>,
  { from, to, by }: Pick<UsageOptions, 'from' | 'to' | 'by'>,
): Promise<Usage> {
  const [first, end] = [Date.parse(from), Date.parse(to) + DAY_MS];
  const rows = new Map<string, Usage['rows'][number]>();
  let unreadable = 0;
  for await (const { appName, userId, event, copied } of entries) {
    if (copied) continue;
    if (!event) unreadable++;
    if (!event || event.timestamp < first || event.timestamp >= end) continue;
    // What the user says uses no tokens, and the user is no agent.
    if (by === 'agent' && event.author === 'user') continue;
    const named = GROUPS[by]({ userId, event });
    const group = typeof named === 'string' ? named : '';
    // An app's name has no NUL.
    const id = `${appName}\0${group}`;
    const row = rows.get(id) ?? { appName, group, events: 0, toolCalls: 0, ...NO_TOKENS };
    rows.set(id, row);
    row.events++;
    row.toolCalls += callsOf(event).length;
    addTokens(row, tokensOf(event) ?? NO_TOKENS);
  }
  const sorted = [...rows].sort(([one], [other]) => (one < other ? -1 : 1));
  return { rows: sorted.map(([, row]) => row), unreadable };
}
