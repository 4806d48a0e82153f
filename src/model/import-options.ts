import { aBoolean, aCount, aFunction, anAbortSignal, oneOf, type Checks } from './arguments.js';
import type { MaintenanceResult } from './results.js';

export interface ImportOptions {
  /** How many events one transaction writes at most; 500 by default, up to 10,000. */
  batchSize?: number;
  /** When it fires, the import ends before the next record. Nothing is thrown. */
  signal?: AbortSignal;
  /** Gets the totals after each record. Errors that it throws are ignored; to end the import, use the signal. */
  onProgress?: (result: MaintenanceResult) => void;
  /**
   * What happens to values of `user:` and `app:` state that exist here: `overwrite` (default) replaces them by those of the records,
   * `keep` does not. An export does not say how old these values are, so an old export may overwrite newer ones.
   */
  sharedState?: 'overwrite' | 'keep';
  /**
   * What happens to a session that is here: `skip` (default) leaves it as it is, `replace` replaces it by that of the records, and
   * `error` throws `AlreadyExistsError`. A session to which somebody has written here since its import, or whose lease somebody
   * holds, is not replaced.
   */
  onExisting?: 'skip' | 'replace' | 'error';
  /** Whether `replace` also replaces these; false by default. What was written here is lost. */
  force?: boolean;
}

export const IMPORT_OPTIONS: Checks<ImportOptions> = {
  batchSize: aCount,
  signal: anAbortSignal,
  onProgress: aFunction,
  sharedState: oneOf('overwrite', 'keep'),
  onExisting: oneOf('skip', 'replace', 'error'),
  force: aBoolean,
};
