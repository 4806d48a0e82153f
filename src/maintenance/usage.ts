import { callsOf } from '../conversation/calls.js';
import { NO_TOKENS, addTokens, tokensOf, type TokenCounts } from '../conversation/tokens.js';
import type { LogEntry } from '../log/entries.js';
import { DAY_MS, dayOf } from '../model/days.js';
import type { UsageOptions } from './options.js';

export interface Usage {
  /** By app and group, in their order. */
  rows: {
    appName: string;
    /** A day in UTC such as `2026-11-26`, the id of a user, a model, an agent or the app, as `by` says. Empty if the events name none. */
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
    /**
     * How long the models took, in ms: from the `timestamp` of their events to the appends, as far as the clocks of process and database
     * agree. Events without `appendTime` are left out.
     */
    modelMs: number;
    /** The tokens by model, the empty text for events that name none: models have prices of their own. */
    models: Record<
      string,
      Pick<Usage['rows'][number], 'inputTokens' | 'cachedTokens' | 'outputTokens' | 'thoughtsTokens'>
    >;
  }[];
  /** How many events could not be read. They are counted in no row. */
  unreadable: number;
}

type ReadEvent = Pick<LogEntry, 'appName' | 'userId'> & { event: NonNullable<LogEntry['event']> };

const GROUPS: Readonly<Record<UsageOptions['by'], (entry: ReadEvent) => unknown>> = {
  day: ({ event }) => dayOf(event.timestamp),
  user: ({ userId }) => userId,
  model: ({ event }) => event.modelVersion,
  agent: ({ event }) => event.author,
  app: ({ appName }) => appName,
};

/** See `SessionMaintenance.usage`. @param entries none that is older than the day before `from`, except unreadable ones. */
export async function usageIn(
  entries: AsyncIterable<LogEntry>,
  { from, to, by }: Pick<UsageOptions, 'from' | 'to' | 'by'>,
): Promise<Usage> {
  const [first, end] = [Date.parse(from), Date.parse(to) + DAY_MS];
  const rows = new Map<string, Row>();
  let unreadable = 0;
  for await (const { appName, userId, event, copied, appendTime } of entries) {
    if (copied) continue;
    if (!event) unreadable++;
    if (!event || event.timestamp < first || event.timestamp >= end) continue;
    // What the user says uses no tokens, and the user is no agent.
    if (by === 'agent' && event.author === 'user') continue;
    const group = textOf(GROUPS[by]({ appName, userId, event }));
    // An app's name has no NUL.
    const id = `${appName}\0${group}`;
    const row: Row = rows.get(id) ?? {
      appName,
      group,
      events: 0,
      toolCalls: 0,
      ...NO_TOKENS,
      modelMs: 0,
      models: new Map(),
    };
    rows.set(id, row);
    row.events++;
    row.toolCalls += callsOf(event).length;
    const tokens = tokensOf(event);
    if (!tokens) continue;
    addTokens(row, tokens);
    const model = textOf(event.modelVersion);
    const ofModel = row.models.get(model) ?? { ...NO_TOKENS };
    row.models.set(model, ofModel);
    addTokens(ofModel, tokens);
    if (appendTime !== undefined) row.modelMs += Math.max(0, appendTime - event.timestamp);
  }
  const sorted = [...rows].sort(([one], [other]) => (one < other ? -1 : 1));
  return { rows: sorted.map(([, row]) => ({ ...row, models: Object.fromEntries(row.models) })), unreadable };
}

type Row = Omit<Usage['rows'][number], 'models'> & { models: Map<string, TokenCounts> };

const textOf = (value: unknown) => (typeof value === 'string' ? value : '');
