import {
  aBoolean,
  aCount,
  aFunction,
  aWait,
  aWholeNumber,
  anAbortSignal,
  anything,
  condition,
  object,
  oneOf,
  rule,
  type Known,
} from '../model/arguments.js';
import { isDay } from '../model/days.js';
import { InvalidArgumentError } from '../model/errors.js';
import { checkKeys, givenKey, type SessionKey } from '../model/keys.js';
import { COMMON_OPTIONS } from '../model/options.js';
import type { ImportResult, MaintenanceResult } from '../model/results.js';
import type { TransferTexts } from '../transfer/bound-texts.js';
import type { ExportOptions } from '../transfer/export.js';
import type { RepairOptions } from './repair.js';

/** How much work is done per transaction, and in total. */
export interface BatchOptions {
  /** The most rows of sessions and events that one transaction deletes; 1,000 by default, at most 10,000. */
  batchSize?: number;
  /** End after n transactions; no limit by default. */
  maxBatches?: number;
  /**
   * How long to wait between two transactions, in ms; 0 by default, on SQLite 125: other processes check every 100 ms
   * whether the file's lock is free. If nobody else writes, 0 is faster there.
   */
  pauseMs?: number;
  /** When it fires, the work ends before the next transaction. Nothing is thrown; `more` of the result is true. */
  signal?: AbortSignal;
  /** Only counts: nothing is written. */
  dryRun?: boolean;
  /** Includes sessions whose lease somebody holds; false by default. */
  includeLeased?: boolean;
  /** Called after each transaction with the totals so far. What it throws is ignored; to end the work, use the signal. */
  onProgress?: (done: MaintenanceResult) => void;
}

/** Which sessions to delete: those that meet all given conditions. At least one time is required. */
export interface PruneOptions extends BatchOptions {
  appName?: string;
  userId?: string;
  /** Sessions last updated (`lastUpdateTime`) at least this long ago, in ms. */
  idleFor?: number;
  /** Sessions created at least this long ago, in ms. */
  olderThan?: number;
  /** Sessions deleted with `deletion: 'soft'` at least this long ago, in ms. */
  deletedFor?: number;
}

/** Which events to drop: either those before the newest n, or those before a time. */
export interface TrimOptions extends BatchOptions {
  appName?: string;
  userId?: string;
  /** One session; needs `appName` and `userId`. */
  sessionId?: string;
  /** How many of the newest events each session keeps. */
  keepLast?: number;
  /**
   * Drops the oldest events up to the first one that is younger than this, in ms, by the events' timestamps. All events after
   * that one stay, whatever their timestamps.
   */
  olderThan?: number;
  /** Also drops events whose calls wait for a person; false by default: a session keeps the first of these, and all after it. */
  dropOpenCalls?: boolean;
}

export interface EraseUserOptions extends BatchOptions {
  userId: string;
  /** One app alone; every app by default. */
  appName?: string;
}

/** What to rewrite, and how much per transaction. */
export interface ReencodeOptions extends Omit<BatchOptions, 'includeLeased'> {
  appName?: string;
  /** One user, without the state of apps. */
  userId?: string;
  /** The most texts that are read at a time and rewritten in one transaction; 200 by default, at most 10,000. */
  batchSize?: number;
  /**
   * Also encodes texts that lack a codec with `required`; false by default: they count as `unreadable`, and stay. Only for the
   * first encryption: later such a text may be forged, and this would make it trusted.
   */
  adoptPlain?: boolean;
}

export interface StatsOptions {
  appName?: string;
  userId?: string;
}

/** Whose events to count, of which days, and what to group them by. */
export interface UsageOptions {
  appName?: string;
  userId?: string;
  /** The first day, in UTC, such as `2026-11-01`. */
  from: string;
  /** The last day. */
  to: string;
  by: 'day' | 'user' | 'model' | 'agent';
}

export interface ImportOptions {
  /** The most events that one transaction writes; 500 by default, at most 10,000. */
  batchSize?: number;
  /** When it fires, the import ends before the next record. Nothing is thrown. */
  signal?: AbortSignal;
  /** Called after each record with the totals so far. What it throws is ignored; to end the import, use the signal. */
  onProgress?: (done: ImportResult) => void;
  /**
   * What happens to values of `user:` and `app:` state that exist here: `overwrite` (default) takes the values of the records,
   * `keep` leaves them. An export has no times of these values, so an older export would take them back.
   */
  sharedState?: 'overwrite' | 'keep';
  /**
   * `'plain'` by default. `'asStored'` also accepts records of an export with `texts: 'asStored'`: encoded texts are written
   * unchanged and unchecked, so accept them only from a source that you trust.
   */
  texts?: TransferTexts;
}

/** The most values that one statement can bind on every database. */
const MAX_BATCH_SIZE = 10_000;

/** How many rows, events or texts one transaction takes. */
export const batchSizeOf = ({ batchSize }: { batchSize?: number }, byDefault: number): number =>
  Math.min(batchSize ?? byDefault, MAX_BATCH_SIZE);

export const IMPORT_OPTIONS: Known<Omit<ImportOptions, 'texts'>> = {
  batchSize: aCount,
  signal: anAbortSignal,
  onProgress: aFunction,
  sharedState: oneOf('overwrite', 'keep'),
};

/** `optionsOf` checks the names. */
const OWNER: Known<StatsOptions> = { appName: condition(anything), userId: condition(anything) };
const BATCH_OPTIONS: Known<BatchOptions> = {
  batchSize: aCount,
  maxBatches: aCount,
  pauseMs: aWait,
  signal: anAbortSignal,
  dryRun: aBoolean,
  includeLeased: aBoolean,
  onProgress: aFunction,
};

/**
 * @param more throws for what the values together do not say.
 * @returns a check of a method's options, and of the names in them. It throws InvalidKeyError when one cannot be a key.
 */
function optionsOf<Options extends Partial<SessionKey>>(
  method: string,
  known: Known<Options>,
  more?: (options: Options) => void,
  ...required: readonly (keyof Options)[]
): (given: Options) => Options {
  const check = object<Options>(known, ...required);
  return (given) => {
    const options = check(given, `The options of ${method}`);
    more?.(options);
    checkKeys(givenKey(options));
    return options;
  };
}

export const checkOptions = object(COMMON_OPTIONS);
const someTexts = oneOf('plain', 'asStored');
export const checkImport = object<ImportOptions>({ ...IMPORT_OPTIONS, texts: someTexts });
export const checkRepair = object<RepairOptions>({ dryRun: aBoolean, includeLeased: aBoolean });

export const checkPrune = optionsOf<PruneOptions>(
  'prune',
  { ...OWNER, ...BATCH_OPTIONS, idleFor: condition(aWait), olderThan: condition(aWait), deletedFor: condition(aWait) },
  ({ idleFor, olderThan, deletedFor }) => {
    if (idleFor === undefined && olderThan === undefined && deletedFor === undefined)
      throw new InvalidArgumentError(
        'prune needs idleFor, olderThan or deletedFor; without it every session would go.',
      );
  },
);

export const checkTrim = optionsOf<TrimOptions>(
  'trim',
  {
    ...{ ...OWNER, ...BATCH_OPTIONS, sessionId: condition(anything), dropOpenCalls: aBoolean },
    ...{ keepLast: condition(aWholeNumber), olderThan: condition(aWait) },
  },
  ({ keepLast, olderThan }) => {
    if ((keepLast === undefined) === (olderThan === undefined))
      throw new InvalidArgumentError('trim needs either keepLast or olderThan.');
  },
);

/** @returns the one session that is to be trimmed; undefined without a `sessionId`. */
export function trimmedSession({ appName, userId, sessionId }: TrimOptions): SessionKey | undefined {
  if (sessionId === undefined) return undefined;
  if (appName === undefined || userId === undefined)
    throw new InvalidArgumentError('A sessionId needs appName and userId.');
  return { appName, userId, sessionId };
}

export const checkErase = optionsOf<EraseUserOptions>(
  'eraseUser',
  { ...OWNER, userId: anything, ...BATCH_OPTIONS },
  // Without a user everybody would be erased.
  ({ userId }) => checkKeys({ userId }),
);

const { includeLeased: _, ...WORK_OPTIONS } = BATCH_OPTIONS;
export const checkReencode = optionsOf<ReencodeOptions>('reencode', {
  ...{ ...OWNER, ...WORK_OPTIONS, adoptPlain: aBoolean },
});

export const checkExport = optionsOf<ExportOptions>('exportSessions', { ...OWNER, texts: someTexts });

export const checkStats = optionsOf<StatsOptions & { groupBy?: 'app' }>('stats', { ...OWNER, groupBy: oneOf('app') });

const aDay = rule("a day such as '2026-11-26'", isDay);

export const checkUsage = optionsOf<UsageOptions>(
  'usage',
  { ...OWNER, from: aDay, to: aDay, by: oneOf('day', 'user', 'model', 'agent') },
  ({ from, to }) => {
    if (to < from) throw new InvalidArgumentError('to must be the day of from, or a later one.');
  },
  ...(['from', 'to', 'by'] as const),
);
