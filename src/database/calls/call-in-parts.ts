import { AdkMikroOrmError, DatabaseError } from '../../model/errors.js';
import type { ErrorContext } from '../../model/options.js';
import type { MaintenanceResult } from '../../model/results.js';
import type { SqlRunner } from '../dialects/dialect.js';
import type { Database } from './database.js';
import { isDuplicate } from './failure-of.js';
import { onceOnRows } from './once.js';

/** How often a transaction is tried if others insert the same rows; on PostgreSQL two others have been in its way at once. */
const ATTEMPTS = 10;

/** A call that works in several transactions. If it fails, its error says what the earlier ones have done (contract O1). */
export class CallInParts {
  readonly database: Database;
  readonly #call: ErrorContext;
  #isStored = false;

  constructor(database: Database, call: ErrorContext) {
    this.database = database;
    this.#call = call;
  }

  /** Runs statements that only read. */
  readonly read: SqlRunner = (work) => this.database.call(this.#call, () => this.database.run(work));

  /** Runs its work in a transaction, once. */
  readonly write: SqlRunner = async (work) => {
    const attempt = async (number: number) => {
      try {
        return await onceOnRows(this.database, work);
      } catch (error) {
        // Another call has inserted a row after the work looked for it. The next attempt finds it, unless others have replaced it.
        if (!isDuplicate(error) || number === ATTEMPTS) throw error;
        return attempt(number + 1);
      }
    };
    const result = await this.database.call(this.#call, () => attempt(1));
    this.#isStored = true;
    return result;
  };

  /**
   * @param work does everything that the call does.
   * @param result returns the result so far.
   * @returns the whole result.
   */
  run<Result extends MaintenanceResult>(result: () => Result, work: () => Promise<void>): Promise<Result> {
    return this.database.observe(this.#call, async () => {
      try {
        await work();
      } catch (error) {
        if (!this.#isStored || !(error instanceof AdkMikroOrmError)) throw error;
        if (error instanceof DatabaseError) throw error.after(result());
        error.result = result();
        throw error;
      }
      return result();
    });
  }
}
