import { callsOf } from '../../../../src/conversation/calls.js';
import { InvalidArgumentError, type EventLog, type LogEntry } from '../../../../src/index.js';
import { anything, condition, isDate, object, oneOf, rule } from '../../../../src/model/arguments.js';
import { withoutUndefined } from '../../../../src/model/json.js';
import { checkKeys, partialKey } from '../../../../src/model/keys.js';
import { dayOf, isDay } from './days.js';
import { ModelTimes } from './durations.js';
import { NO_TOKENS, addTokens, tokensOf, type TokenCounts } from './tokens.js';

/** Whose events to count, of which days, and what to group them by. */
export interface UsageOptions {
  appName?: string;
  userId?: string;
  /** The first day, in UTC, such as `2026-11-01`. */
  from: string;
  /** The last day. */
  to: string;
  by: 'day' | 'user' | 'model' | 'agent' | 'app';
}

const aDay = rule("a day such as '2026-11-26'", isDay);
const checkOptions = object<UsageOptions>(
  {
    ...{ appName: condition(anything), userId: condition(anything), from: aDay, to: aDay },
    by: oneOf('day', 'user', 'model', 'agent', 'app'),
  },
  ...(['from', 'to', 'by'] as const),
);

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
     * How long the models took, in ms: from the `timestamp` of their events to the appends, but not beyond the next event of the same
     * agent, as far as the clocks of process and database agree. Events without `appendTime`, and those that were stored long after they
     * were made, are left out.
     */
    modelMs: number;
    /** The tokens by model, the empty text for events that name none: models have prices of their own. */
    models: Record<
      string,
      Pick<Usage['rows'][number], 'inputTokens' | 'cachedTokens' | 'outputTokens' | 'thoughtsTokens'>
    >;
  }[];
  /** How many events could not be read, or have no time. They are counted in no row. */
  unreadable: number;
}

/** What an event, or many of the same kind, counts. */
export interface Counted extends TokenCounts {
  appName: string;
  userId: string;
  day: string;
  agent: string;
  model: string;
  events: number;
  toolCalls: number;
  modelMs: number;
}

/** @returns undefined if the event could not be read or has no time: another program may have stored it. `ModelTimes` has its `modelMs`. */
export function countedOf({
  appName,
  userId,
  event,
}: Pick<LogEntry, 'appName' | 'userId' | 'event'>): Counted | undefined {
  if (event === undefined || !isDate(event.timestamp)) return undefined;
  return {
    ...{ appName, userId, day: dayOf(event.timestamp), agent: textOf(event.author), model: textOf(event.modelVersion) },
    ...{ events: 1, toolCalls: callsOf(event).length, modelMs: 0, ...(tokensOf(event) ?? NO_TOKENS) },
  };
}

/** The time of the model that made an event, to be added where the event was counted. */
export const timeOf = (counted: Counted, modelMs: number): Counted => ({
  ...counted,
  ...{ events: 0, toolCalls: 0, ...NO_TOKENS, modelMs },
});

export function addCounted(sum: Omit<Counted, 'appName' | 'userId' | 'day' | 'agent' | 'model'>, more: typeof sum) {
  sum.events += more.events;
  sum.toolCalls += more.toolCalls;
  sum.modelMs += more.modelMs;
  addTokens(sum, more);
}

const GROUPS: Readonly<Record<UsageOptions['by'], (counted: Counted) => string>> = {
  day: ({ day }) => day,
  user: ({ userId }) => userId,
  model: ({ model }) => model,
  agent: ({ agent }) => agent,
  app: ({ appName }) => appName,
};

/** Rows of usage, while events are added to them. */
export class UsageRows {
  readonly #rows = new Map<string, Row>();

  /** @param isDaily a row for each day, too. */
  constructor(
    readonly by: UsageOptions['by'],
    readonly isDaily = false,
  ) {}

  add(counted: Counted): void {
    const { appName, model } = counted;
    // What the user says uses no tokens, and the user is no agent.
    if (this.by === 'agent' && counted.agent === 'user') return;
    const group = GROUPS[this.by](counted);
    const day = this.isDaily ? counted.day : undefined;
    // A name has no NUL.
    const id = [appName, group, day].join('\0');
    const row: Row = this.#rows.get(id) ?? {
      ...{
        appName,
        group,
        ...withoutUndefined({ day }),
        events: 0,
        toolCalls: 0,
        ...NO_TOKENS,
        modelMs: 0,
        models: new Map(),
      },
    };
    this.#rows.set(id, row);
    addCounted(row, counted);
    if (counted.inputTokens + counted.outputTokens + counted.thoughtsTokens === 0) return;
    const ofModel = row.models.get(model) ?? { ...NO_TOKENS };
    row.models.set(model, ofModel);
    addTokens(ofModel, counted);
  }

  /** By app and group, in their order. */
  get rows(): (Usage['rows'][number] & Pick<Row, 'day'>)[] {
    const sorted = [...this.#rows].sort(([one], [other]) => (one < other ? -1 : 1));
    return sorted.map(([, row]) => ({ ...row, models: Object.fromEntries(row.models) }));
  }
}

/**
 * Adds up what models used: tokens, from the `usageMetadata` of events, and function calls. For this it reads the contents of all
 * events of these days from the event log, a page at a time. Deleted, trimmed and soft-deleted events are not counted. An
 * event that forks have copied counts once (contract K4). The day of an event is that of its `timestamp`.
 *
 * ```ts
 * const { rows } = await usageOf(log, { appName: 'support', from: '2026-11-01', to: '2026-11-30', by: 'model' });
 * ```
 *
 * @returns a row for each app and day, user, model (`modelVersion`) or agent (`author`, without the
 *   user) that has events, or one for each app.
 * @throws InvalidArgumentError if an option is unknown, `from` or `to` is not a day, or `to` is before `from`.
 * @throws InvalidKeyError for a name that cannot be a key; and whatever `EventLog.since` throws.
 */
export async function usageOf(log: EventLog, options: UsageOptions): Promise<Usage> {
  const { from, to, by, ...owner } = checkOptions(options, 'The options of usageOf');
  if (to < from) throw new InvalidArgumentError('to must be the day of from, or a later one.', ['to', 'from']);
  checkKeys(partialKey(owner));
  const first = Date.parse(from);
  const rows = new UsageRows(by);
  const add = (counted: Counted) => {
    if (counted.day >= from && counted.day <= to) rows.add(counted);
  };
  const times = new ModelTimes((counted: Counted, ms) => add(timeOf(counted, ms)));
  let unreadable = 0;
  for await (const entry of log.since(0, { ...owner, afterTimestamp: first - 1 })) {
    if (entry.copied) continue;
    const [counted, { event }] = [countedOf(entry), entry];
    if (!counted || !event) {
      unreadable++;
      continue;
    }
    add(counted);
    times.follow(entry, { ...entry, event }, counted);
  }
  return { rows: rows.rows, unreadable };
}

type Row = Omit<Usage['rows'][number], 'models'> & { day?: string; models: Map<string, TokenCounts> };

const textOf = (value: unknown) => (typeof value === 'string' ? value : '');
