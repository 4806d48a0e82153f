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
  objects,
  oneOf,
  type Checks,
} from '../model/arguments.js';
import { InvalidArgumentError } from '../model/errors.js';
import { IMPORT_OPTIONS, type ImportOptions } from '../model/import-options.js';
import { checkKeys, partialKey, type SessionKey } from '../model/keys.js';
import { COMMON_OPTIONS, TOOL_APPS, type CommonOptions } from '../model/options.js';
import type { MaintenanceResult } from '../model/results.js';
import type { Owner } from '../owned/owned-rows.js';

/** Options of `SessionMaintenance`. */
export interface MaintenanceOptions extends CommonOptions {
  /** As for `MikroOrmSessionService`: `prune` and `eraseUser` delete the sessions of tools together with those of their callers. */
  toolApps?: readonly string[];
  /**
   * The host's own tables whose rows belong to people: `eraseUser` deletes these rows, before the sessions and in the order of the
   * list, and the export of a person has them.
   */
  owned?: readonly {
    /** The entity: its class, or what `defineEntity` returned. */
    entity: { readonly name: string } | { readonly meta: { readonly className: string } };
    /** Its property with the name of the app. */
    appName: string;
    /** Its property with the id of the user. */
    userId: string;
  }[];
}

/** How much work is done per transaction, and in total. */
export interface BatchOptions {
  /** How many rows of sessions and events one transaction deletes at most; 1,000 by default, up to 10,000. */
  batchSize?: number;
  /** Ends the work after this many transactions; no limit by default. */
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
  /** Also handles sessions whose lease somebody holds; false by default. */
  includeLeased?: boolean;
  /** Gets the totals after each transaction. Errors that it throws are ignored; to end the work, use the signal. */
  onProgress?: (result: MaintenanceResult) => void;
}

/** Which sessions to delete: those that meet all given conditions. At least one time is required. */
export interface PruneOptions extends BatchOptions {
  appName?: string;
  userId?: string;
  /**
   * Sessions that were last used at least this long ago, in ms: since their last event (`lastUpdateTime`), and since somebody last
   * restored, rewound or described them, set their state or rewrote an event.
   */
  idleFor?: number;
  /** Sessions created at least this long ago, in ms. */
  sessionsOlderThan?: number;
  /** Sessions deleted with `deletion: 'soft'` at least this long ago, in ms. */
  deletedFor?: number;
}

/** Which events to delete: either those before the newest n, or those before a time. */
export interface TrimOptions extends BatchOptions {
  appName?: string;
  userId?: string;
  /** Only this session; requires `appName` and `userId`. */
  sessionId?: string;
  /** How many of the newest events each session keeps. */
  keepLast?: number;
  /**
   * Deletes the oldest events, up to the first one that is younger than this, in ms, by its timestamp. All events after that one
   * stay, whatever their timestamps.
   */
  eventsOlderThan?: number;
  /** Also deletes events whose calls wait for a person; false by default: the first of them stays, with all events after it. */
  dropOpenCalls?: boolean;
  /**
   * Keeps the newest summary of an agent's compaction, and all events that a model is shown beside it; true by default. If an agent
   * no longer writes summaries, its session keeps everything since the last one, unless this is false. If an event cannot be decoded,
   * which may be a summary, its session keeps everything.
   */
  keepSummary?: boolean;
}

export interface EraseUserOptions extends BatchOptions {
  userId: string;
  /** Only this app; every app by default. */
  appName?: string;
}

export interface ReencodeOptions extends Omit<BatchOptions, 'includeLeased'> {
  appName?: string;
  /** Only this user, without the state of apps. */
  userId?: string;
  /** How many texts one transaction rewrites at most; 200 by default, up to 10,000. */
  batchSize?: number;
}

/** Whose rows to count or to export; those of all apps and users by default. */
export interface OwnerOptions {
  appName?: string;
  /** Leaves out the state of apps (`app:`), which belongs to nobody. */
  userId?: string;
}

/** The names are checked by `optionsOf`. */
const OWNER: Checks<OwnerOptions> = { appName: condition(anything), userId: condition(anything) };
const BATCH_OPTIONS: Checks<BatchOptions> = {
  batchSize: aCount,
  maxBatches: aCount,
  pauseMs: aWait,
  signal: anAbortSignal,
  dryRun: aBoolean,
  includeLeased: aBoolean,
  onProgress: aFunction,
};

/**
 * @param more throws if values do not fit together.
 * @returns a check of a method's options, which throws InvalidKeyError for a name that cannot be a key.
 */
function optionsOf<Options extends Partial<SessionKey>>(
  method: string,
  checks: Checks<Options>,
  more?: (options: Options) => void,
): (given: Options) => Options {
  const check = object<Options>(checks);
  return (given) => {
    const options = check(given, `The options of ${method}`);
    more?.(options);
    checkKeys(partialKey(options));
    return options;
  };
}

export const checkOptions = object<MaintenanceOptions>({
  ...COMMON_OPTIONS,
  toolApps: TOOL_APPS,
  owned: objects,
});
export const checkImport = object<ImportOptions>(IMPORT_OPTIONS);
export const checkStateOwner = optionsOf<Owner>('repair', OWNER, ({ appName }) => checkKeys({ appName }));
export const checkRepair = object<Pick<BatchOptions, 'dryRun' | 'includeLeased'>>({
  dryRun: aBoolean,
  includeLeased: aBoolean,
});

export const checkPrune = optionsOf<PruneOptions>(
  'prune',
  {
    ...OWNER,
    ...BATCH_OPTIONS,
    idleFor: condition(aWait),
    sessionsOlderThan: condition(aWait),
    deletedFor: condition(aWait),
  },
  ({ idleFor, sessionsOlderThan, deletedFor }) => {
    if (idleFor === undefined && sessionsOlderThan === undefined && deletedFor === undefined)
      throw new InvalidArgumentError(
        'prune needs idleFor, sessionsOlderThan or deletedFor; otherwise it would delete every session.',
        ['idleFor', 'sessionsOlderThan', 'deletedFor'],
      );
  },
);

export const checkTrim = optionsOf<TrimOptions>(
  'trim',
  {
    ...{ ...OWNER, ...BATCH_OPTIONS, sessionId: condition(anything), keepLast: condition(aWholeNumber) },
    ...{ eventsOlderThan: condition(aWait), dropOpenCalls: aBoolean, keepSummary: aBoolean },
  },
  ({ keepLast, eventsOlderThan }) => {
    if ((keepLast === undefined) === (eventsOlderThan === undefined))
      throw new InvalidArgumentError('trim needs either keepLast or eventsOlderThan.', ['keepLast', 'eventsOlderThan']);
  },
);

/** @returns the one session to trim; undefined without a `sessionId`. */
export function trimmedSession({ appName, userId, sessionId }: TrimOptions): SessionKey | undefined {
  if (sessionId === undefined) return undefined;
  if (appName === undefined || userId === undefined)
    throw new InvalidArgumentError('A sessionId needs appName and userId.', ['sessionId', 'appName', 'userId']);
  return { appName, userId, sessionId };
}

export const checkErase = optionsOf<EraseUserOptions>(
  'eraseUser',
  { ...OWNER, userId: anything, ...BATCH_OPTIONS },
  // Without a user, everybody would be erased.
  ({ userId }) => checkKeys({ userId }),
);

const { includeLeased: _, ...WORK_OPTIONS } = BATCH_OPTIONS;
export const checkReencode = optionsOf<ReencodeOptions>('reencode', { ...OWNER, ...WORK_OPTIONS });

export const checkExport = optionsOf<OwnerOptions>('exportSessions', OWNER);

export const checkStats = optionsOf<OwnerOptions & { groupBy?: 'app' }>('stats', { ...OWNER, groupBy: oneOf('app') });
