import { UniqueConstraintViolationException } from '@mikro-orm/core';
import { AdkMikroOrmError, DatabaseError } from '../../model/errors.js';
import type { ErrorContext } from '../../model/options.js';
import type { ImportResult, MaintenanceResult } from '../../model/results.js';
import type { Run } from '../dialects/dialect.js';
import type { Database } from './database.js';
import { Once } from './once.js';

/** A call that works in several transactions. If it fails, its error says what those before have done (contract O1). */
export class CallInParts {
  readonly database: Database;
  readonly #call: ErrorContext;
  readonly #once: Once;
  #isStored = false;

  constructor(database: Database, call: ErrorContext) {
    this.database = database;
    this.#call = call;
    this.#once = new Once(database, call);
  }

  /** Runs statements that only read. */
  readonly read: Run = (work) => this.database.call(this.#call, () => this.database.run(work));

  /** Runs its work in a transaction, once. */
  readonly write: Run = async (work) => {
    const attempt = () => this.#once.run(work, { locksRowsOnly: true });
    const result = await this.database.call(this.#call, () =>
      attempt().catch((error: unknown) => {
        // Somebody has inserted a row that was not there when the work looked for it. The next attempt finds it.
        if (error instanceof UniqueConstraintViolationException) return attempt();
        throw error;
      }),
    );
    this.#isStored = true;
    return result;
  };

  /** Runs what encodes before it writes. */
  encoding<T>(work: () => Promise<T>): Promise<T> {
    return this.database.unobserved(this.#call, work);
  }

  /**
   * @param work all that the call does.
   * @param done what has been done so far.
   * @returns what has been done in all.
   */
  run<Done extends MaintenanceResult | ImportResult>(done: () => Done, work: () => Promise<void>): Promise<Done> {
    return this.database.observe(this.#call, () => this.#run(done, work));
  }

  async #run<Done extends MaintenanceResult | ImportResult>(
    done: () => Done,
    work: () => Promise<void>,
  ): Promise<Done> {
    try {
      await work();
    } catch (error) {
      // If the database has failed this is left out: the caller would wait for it once more.
      if (!(error instanceof DatabaseError)) await this.#once.end();
      if (!this.#isStored || !(error instanceof AdkMikroOrmError)) throw error;
      if (error instanceof DatabaseError) throw error.after(done());
      error.done = done();
      throw error;
    }
    await this.#once.end();
    return done();
  }
}
