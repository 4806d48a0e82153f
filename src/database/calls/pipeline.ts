import { nextTick } from '../../model/clock.js';
import { PLAIN } from '../../model/stored-texts.js';
import type { Dialect, Sql } from '../dialects/dialect.js';
import type { Driver, DriverResult, Statement } from '../drivers/driver.js';
import { textLength } from '../dialects/session-rows.js';
import { type Tables, numberOf } from '../sql/tables.js';
import type { SentContext, Statements } from './sql.js';

/** What statements need to know about the call that sends them. */
export interface SqlContext extends SentContext {
  dialect: Dialect;
  /** The prefix of each statement outside a transaction, and of the one that begins a transaction; see `clusterPrefix`. */
  prefix: string;
  behind: Sql['behind'];
  /** Called when a statement needs the tables; another program's database has none. */
  tables: () => Tables;
}

/** A statement that waits to be sent, and who waits for its result. */
interface Waiting extends Statement {
  resolve?: (result: DriverResult) => void;
  reject?: (error: unknown) => void;
}

/** How much text waits for others: more than this is sent at once, so that it is not kept in memory. */
const MOST_LENGTH = 1_000_000;

/**
 * The statements of one transaction, or of a call without one, on their way to the server. Those whose results are awaited at the
 * same time travel together, with those before them that nobody waits for (contract T1). After one that fails, none is sent.
 */
export class Pipeline {
  readonly sql: Sql;
  readonly #statements: Statements;
  readonly #driver: Driver;
  readonly #context: SqlContext;
  /** What begins the transaction, until it is sent. */
  #beginning: Statement[];
  #waiting: Waiting[] = [];
  #length = 0;
  #isScheduled = false;
  #sending: Promise<void> = Promise.resolve();
  #failed: { error: unknown } | undefined;

  /** @param beginning what is sent before the first statement. */
  constructor(statements: Statements, driver: Driver, context: SqlContext, beginning: readonly string[] = []) {
    this.#statements = statements;
    this.#driver = driver;
    this.#context = context;
    const last = beginning.length - 1;
    this.#beginning = beginning.map((text, i) => ({ text, values: [], prefix: i === last ? context.prefix : '' }));
    this.sql = sqlOf(this, context);
  }

  /** Whether the transaction has begun, or a statement waits. */
  get isUsed(): boolean {
    return this.hasBegun || this.#waiting.length > 0;
  }

  get hasBegun(): boolean {
    return this.#beginning.length === 0;
  }

  /** Sends a statement with those that wait, and with those that are added before its caller waits. */
  send(text: string, values: readonly unknown[], wants: 'rows' | 'change'): Promise<DriverResult> {
    return new Promise((resolve, reject) => {
      this.#add({ text, values, wants, resolve, reject });
      if (this.#isScheduled) return;
      this.#isScheduled = true;
      nextTick(() => void this.flush().catch(() => undefined));
    });
  }

  /** Adds a statement to those that are sent next. If it fails, those fail. */
  later(text: string, values: readonly unknown[] = []): void {
    this.#add({ text, values });
    if (this.#length > MOST_LENGTH) void this.flush().catch(() => undefined);
  }

  #add(statement: Waiting): void {
    this.#waiting.push(statement);
    this.#length += textLength(statement.values);
  }

  /** Sends what waits. */
  flush(): Promise<void> {
    const batch = this.#waiting;
    this.#isScheduled = false;
    this.#waiting = [];
    this.#length = 0;
    // One after the other: node-postgres will not run a query while another one is running.
    this.#sending = this.#sending.catch(() => undefined).then(() => this.#send(batch));
    return this.#sending;
  }

  /**
   * Forgets what waits, after a failure, and waits for what is under way.
   *
   * @returns whether the transaction has begun.
   */
  async discard(): Promise<boolean> {
    const forgotten = this.#waiting;
    this.#waiting = [];
    await this.#sending.catch(() => undefined);
    for (const { reject } of forgotten) reject?.(this.#failed?.error ?? new Error('The transaction was rolled back'));
    this.#failed = undefined;
    return this.hasBegun;
  }

  /**
   * Runs `work` in a savepoint of the transaction.
   *
   * @param undone is called with the error of `work`, whose writes are undone.
   * @throws the error of `work`, if only the whole transaction can be undone.
   */
  async savepoint(work: () => Promise<void>, undone: (error: unknown) => void): Promise<void> {
    this.later('savepoint adk');
    try {
      await work();
      await this.flush();
    } catch (error) {
      await this.discard();
      try {
        await this.send('rollback to adk', [], 'change');
      } catch {
        throw error;
      }
      undone(error);
    }
    this.later('release adk');
  }

  async #send(batch: readonly Waiting[]): Promise<void> {
    if (this.#failed) throw this.#failed.error;
    if (batch.length === 0) return;
    const { prefix, isInTransaction } = this.#context;
    const beginning = this.#beginning;
    this.#beginning = [];
    const all: readonly Waiting[] =
      beginning.length > 0
        ? [...beginning, ...batch]
        : prefix && !isInTransaction
          ? batch.map((statement) => ({ ...statement, prefix }))
          : batch;
    try {
      const results = await this.#statements.sendAll(this.#driver, all, this.#context);
      for (const [i, { resolve }] of all.entries()) resolve?.(results[i] ?? NOTHING);
    } catch (error) {
      if (isInTransaction) this.#failed = { error };
      for (const { reject } of batch) reject?.(error);
      throw error;
    }
  }
}

const NOTHING: DriverResult = { rows: [], affectedRows: 0, insertId: undefined };

function sqlOf(pipeline: Pipeline, { dialect, tables, isInTransaction, behind }: SqlContext): Sql {
  return {
    dialect,
    get tables() {
      return tables();
    },
    isInTransaction,
    texts: PLAIN,
    behind,
    async all<Row extends object>(text: string, values: readonly unknown[] = []) {
      const { rows } = await pipeline.send(text, values, 'rows');
      // Each statement is written for the columns of its `Row`; `tables.ts` checks their values.
      return rows as Row[];
    },
    async run(text, values = []) {
      const { affectedRows, insertId } = await pipeline.send(text, values, 'change');
      return { affectedRows: numberOf(affectedRows), insertId: insertId === undefined ? 0 : wholeNumber(insertId) };
    },
    later: (text, values) => pipeline.later(text, values),
  };
}

/** Above 2^53 a driver would have rounded it. */
function wholeNumber(value: unknown): number {
  const number = numberOf(value);
  if (!Number.isSafeInteger(number)) throw new Error(`The driver gave ${typeof value} where a number should be`);
  return number;
}
