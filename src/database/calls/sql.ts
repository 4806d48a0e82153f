import {
  DefaultLogger,
  DriverException,
  SimpleLogger,
  type Configuration,
  type EntityManager,
  type ExceptionConverter,
  type Logger,
} from '@mikro-orm/core';
import type { Driver, DriverResult, Statement, StatementContext } from '../drivers/driver.js';
import { nextTick, now, setImmediate } from '../../model/clock.js';
import { DatabaseError } from '../../model/errors.js';
import { FAILURES } from '../../model/failures.js';
import { callHost } from '../../model/host-callbacks.js';
import { isObject, isPromise } from '../../model/json.js';
import { PLAIN } from '../../model/stored-texts.js';
import type { Dialect, Sql } from '../dialects/dialect.js';
import { textLength } from '../dialects/session-rows.js';
import type { Tables } from '../sql/tables.js';
import { numberOf } from '../sql/values.js';

interface LoggedResult {
  results?: number;
  affected?: unknown;
  level?: 'error';
}

/** What statements are sent with. */
interface SentContext extends StatementContext {
  dialect: Dialect;
  /** Whether the database is in this process. */
  isInProcess?: boolean;
  /** Called before each statement; what it throws is thrown instead of sending it. */
  refuse?: (() => void) | undefined;
}

/** How long statements may keep the event loop from other work, in ms. */
const MOST_MS = 8;

let lastTurn = 0;
let turning: Promise<void> | undefined;

/**
 * Gives the event loop a turn. A driver in the process answers at once, so a loop of calls would let no timer run: no lease would
 * be renewed, and no abort signal would fire.
 */
async function turn(): Promise<void> {
  await new Promise<void>((resolve) => void setImmediate(resolve));
  lastTurn = now();
  turning = undefined;
}

/** Sends statements to a driver's connection like MikroORM: with the host's `onQuery`, its log, and its classes of errors. */
export class Statements {
  readonly #config: Configuration;
  readonly #converter: ExceptionConverter;
  readonly #format: (text: string, values: readonly unknown[]) => string;

  constructor(em: EntityManager) {
    const platform = em.getPlatform();
    this.#config = em.config;
    this.#converter = platform.getExceptionConverter();
    this.#format = (text, values) => platform.formatQuery(text, values);
  }

  async send(
    driver: Driver,
    statement: Statement,
    context: StatementContext & Partial<SentContext>,
  ): Promise<DriverResult> {
    const [result = NOTHING] = await this.#send([statement], context, alone(driver, context));
    return result;
  }

  /** Sends statements at once, or one by one if the driver cannot. @returns the results of all. */
  sendAll(driver: Driver, all: readonly Statement[], context: SentContext): Promise<readonly DriverResult[]> {
    const together = togetherOn(driver, all, context);
    return together ? this.#send(all, context, together) : this.#sendEach(driver, all, context);
  }

  async #sendEach(driver: Driver, all: readonly Statement[], context: SentContext): Promise<DriverResult[]> {
    const results: DriverResult[] = [];
    for (const statement of all) {
      const { prefix, text } = statement;
      results.push(await this.send(driver, prefix ? { ...statement, text: prefix + text } : statement, context));
    }
    return results;
  }

  /** @throws the error as MikroORM converts it. */
  async #send(
    all: readonly Statement[],
    { isInProcess, refuse }: Partial<SentContext>,
    send: SendsAll,
  ): Promise<readonly DriverResult[]> {
    if (isInProcess && now() - lastTurn >= MOST_MS) await (turning ??= turn());
    refuse?.();
    const onQuery = this.#config.get('onQuery');
    const queried = (statement: Statement) => {
      const text = onQuery?.(statement.text, [...statement.values]) ?? statement.text;
      return text === statement.text ? statement : { ...statement, text };
    };
    const sent = all.map(queried);
    for (const { sending } of sent) sending?.();
    const start = now();
    try {
      const answered = send(sent);
      const answer = isPromise(answered) ? await answered : answered;
      const results = Array.isArray(answer) ? answer : [answer];
      this.#log(sent, start, ({ wants }, i) => {
        const { rows, affectedRows } = results[i] ?? NOTHING;
        return wants === 'rows' ? { results: rows.length } : { affected: affectedRows };
      });
      return results;
    } catch (error) {
      this.#log(sent, start, () => ({ level: 'error' }));
      throw this.#converted(error, sent.map(({ text }) => text).join('; '));
    }
  }

  /** Shows statements in the host's log like MikroORM. */
  #log(sent: readonly Statement[], start: number, outcomeOf: (statement: Statement, i: number) => LoggedResult): void {
    const config = this.#config;
    const took = Math.round(now() - start);
    try {
      const logger = config.getLogger();
      // Most hosts log nothing.
      if (isMikroOrms(logger) && !logger.isEnabled('query')) return;
      const connection = { type: 'write', name: config.get('name') };
      for (const [i, statement] of sent.entries()) {
        const { text, values: params } = statement;
        const query = logger.isEnabled('query-params') ? this.#format(text, params) : text;
        write(logger, { level: 'info', connection, params, took, ...outcomeOf(statement, i), query } as SentQuery);
      }
    } catch {
      // An error of the host's log must not fail the statement.
    }
  }

  #converted(error: unknown, query: string): unknown {
    if (error instanceof DriverException || !isError(error)) return error;
    // MikroORM's exceptions read the stack, which errors of sqlite3's native code lack on Bun.
    error.stack ??= '';
    const converted = this.#converter.convertException(error);
    // For the host's log (contract O8).
    if (!('sql' in converted)) Object.assign(converted, { sql: query });
    return converted;
  }
}

/** The most values of a statement of MariaDB. */
const MOST_VALUES = 65_535;

/** @returns the result of the only one, or those of all. */
type SendsAll = (sent: readonly Statement[]) => DriverResult | DriverResult[] | Promise<DriverResult | DriverResult[]>;

const alone =
  (driver: Driver, context: StatementContext): SendsAll =>
  ([statement]) =>
    statement ? driver.send(statement, context) : [];

/** @returns what sends statements at once; undefined if they must be sent one by one. */
function togetherOn(driver: Driver, all: readonly Statement[], context: SentContext): SendsAll | undefined {
  const { sql, limits } = context.dialect;
  if (all.length === 1 && !all[0]?.prefix) return alone(driver, context);
  // Those of another program have values of any type.
  if (all.length === 1 || context.isForeign) return undefined;
  if (driver.sendAll) return (sent) => driver.sendAll?.(sent, context) ?? [];
  const { block } = sql;
  if (!block || !driver.sendBlock) return undefined;
  const values = all.flatMap((each) => each.values);
  if (values.length > MOST_VALUES || textLength(values) > (limits?.maxTextLength ?? Infinity)) return undefined;
  return (sent) => driver.sendBlock?.(block(sent), sent) ?? [];
}

/** Without `instanceof`, which is false for errors of native code under jest. */
function isError(error: unknown): error is Error {
  return isObject(error) && 'message' in error;
}

/** The member of MikroORM's own logger that is used: the host's `logger`. */
interface WritingLogger extends Logger {
  writer?: (message: string) => unknown;
}

type SentQuery = Parameters<Logger['logQuery']>[0];

function isMikroOrms(logger: Logger): boolean {
  const prototype: unknown = Object.getPrototypeOf(logger);
  return prototype === DefaultLogger.prototype || prototype === SimpleLogger.prototype;
}

/** MikroORM's loggers ignore the result of the host's function, and a promise that rejects would end the process. */
function write(logger: WritingLogger, context: SentQuery): void {
  const { writer } = logger;
  if (!writer || !isMikroOrms(logger)) callHost((given: SentQuery) => logger.logQuery(given), context);
  else if (logger.isEnabled('query', context)) {
    const own = Object.create(logger, { writer: { value: (message: string) => callHost(writer, message) } }) as Logger;
    own.logQuery(context);
  }
}

/** What statements need to know about the call that sends them. */
export interface SqlContext extends SentContext {
  dialect: Dialect;
  /** See `DialectConnections.cluster`. */
  prefix: string;
  behind: Sql['behind'];
  tables: Tables;
  /** Sent after what begins the transaction. */
  settings?: Statement | undefined;
}

/** For a transaction that the server has ended without its work noticing: its commit would store nothing. */
export function rolledBack(): DatabaseError {
  const { rolledBack: failure } = FAILURES;
  return new DatabaseError(failure, failure.reason, undefined, 'none');
}

/** For a statement that begins or ends a transaction or a savepoint. */
export const COMMAND: StatementContext = { isInTransaction: true, mayPrepare: false, isForeign: false };

export const command = (text: string): Statement => ({ text, values: [] });

/** A statement that waits to be sent, and who waits for its result. */
interface BufferedStatement extends Statement {
  resolve?: (result: DriverResult) => void;
  reject?: (error: unknown) => void;
}

/** How much text waits for others: more than this is sent at once, so that it is not kept in memory. */
const MOST_LENGTH = 1_000_000;

/**
 * The statements of one transaction, or of a call without one, on their way to the server. Those whose results are awaited at the
 * same time travel together, with those before them that nobody waits for (contract T1). After one that fails, none is sent.
 */
export class StatementBuffer {
  readonly sql: Sql;
  readonly #statements: Statements;
  readonly #driver: Driver;
  readonly #context: SqlContext;
  /** What begins the transaction, until it is sent. */
  #beginning: Statement[];
  #waiting: BufferedStatement[] = [];
  #length = 0;
  #isScheduled = false;
  /** How many batches are under way. */
  #batches = 0;
  #sending: Promise<void> | undefined;
  #failed: { error: unknown } | undefined;
  /** Whether what has failed was undone with its savepoint. */
  #isUndone = false;

  /** @param beginning what is sent before the first statement. */
  constructor(statements: Statements, driver: Driver, context: SqlContext, beginning: readonly string[] = []) {
    this.#statements = statements;
    this.#driver = driver;
    this.#context = context;
    const last = beginning.length - 1;
    this.#beginning = beginning.map((text, i) => {
      return { text, values: [], begins: text === 'begin', prefix: i === last ? context.prefix : '' };
    });
    if (context.settings) this.#beginning.push(context.settings);
    this.sql = sqlOf(this, context);
  }

  /** Whether the transaction has begun, or a statement waits. */
  get isUsed(): boolean {
    return this.hasBegun || this.#waiting.length > 0;
  }

  get hasBegun(): boolean {
    return this.#beginning.length === 0;
  }

  /** Sends a statement with those that wait, and with those that are added before its caller waits. @returns `of` its result. */
  send<T>(
    text: string,
    values: readonly unknown[],
    wants: 'rows' | 'change',
    of: (result: DriverResult) => T,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ text, values, wants, resolve: (result) => resolve(of(result)), reject });
      if (this.#isScheduled) return;
      this.#isScheduled = true;
      nextTick(() => void this.flush().catch(() => undefined));
    });
  }

  /** Adds a statement to those that are sent next. If it fails, those fail. @param sending see `Statement`. */
  later(text: string, values: readonly unknown[] = [], sending?: () => void): void {
    this.#waiting.push({ text, values, sending });
    this.#length += textLength(values);
    if (this.#length > MOST_LENGTH) void this.flush().catch(() => undefined);
  }

  /** Runs statements, and sends those that nobody has waited for. */
  async run<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    const result = await work(this.sql);
    if (this.#waiting.length > 0 || this.#batches > 0) await this.flush();
    return result;
  }

  /** Sends what waits. */
  flush(): Promise<void> {
    const batch = this.#waiting;
    this.#isScheduled = false;
    this.#waiting = [];
    this.#length = 0;
    // One after the other: node-postgres will not run a query while another one is running.
    const send = () => this.#send(batch);
    const sending = this.#batches++ > 0 ? this.#sending?.then(send, send) : undefined;
    return (this.#sending = sending ?? send());
  }

  /**
   * Forgets what waits, after a failure, and waits for what is under way. Work that continues in parallel must not send after the
   * rollback: it would write outside of the transaction.
   *
   * @returns whether the transaction has begun.
   */
  async discard(): Promise<boolean> {
    const forgotten = this.#waiting;
    this.#waiting = [];
    await this.#sending?.catch(() => undefined);
    const { error } = (this.#failed ??= { error: new Error('The transaction was rolled back') });
    for (const { reject } of forgotten) reject?.(error);
    return this.hasBegun;
  }

  /**
   * Runs `work` in a savepoint of the transaction, and undoes its writes if it fails. After that the buffer sends nothing, unless its
   * caller calls `resume`.
   *
   * @param rollbackFailed is called if only the whole transaction can be undone.
   */
  async savepoint<T>(work: () => Promise<T>, rollbackFailed?: (error: unknown) => void): Promise<T> {
    this.later('savepoint adk');
    await this.flush();
    // Some errors end the whole transaction, and its work may have caught one.
    if (this.#driver.isInTransaction === false) throw rolledBack();
    const release = 'release savepoint adk';
    try {
      const result = await work();
      this.later(release);
      await this.flush();
      return result;
    } catch (error) {
      await this.discard();
      const context = { ...COMMAND, refuse: this.#context.refuse };
      try {
        for (const text of ['rollback to savepoint adk', release])
          await this.#statements.send(this.#driver, command(text), context);
        this.#isUndone = true;
      } catch (failed) {
        rollbackFailed?.(failed);
      }
      throw error;
    }
  }

  /** Sends statements again after a savepoint has failed. @throws its error if that was not undone. */
  resume(error: unknown): void {
    if (!this.#isUndone) throw error;
    this.#isUndone = false;
    this.#failed = undefined;
  }

  async #send(batch: readonly BufferedStatement[]): Promise<void> {
    const { prefix, isInTransaction } = this.#context;
    try {
      if (this.#failed) throw this.#failed.error;
      if (batch.length === 0) return;
      const beginning = this.#beginning;
      this.#beginning = [];
      const all: readonly BufferedStatement[] =
        beginning.length > 0
          ? [...beginning, ...batch]
          : prefix && !isInTransaction
            ? batch.map((statement) => ({ ...statement, prefix }))
            : batch;
      const results = await this.#statements.sendAll(this.#driver, all, this.#context);
      all.forEach(({ resolve }, i) => resolve?.(results[i] ?? NOTHING));
    } catch (error) {
      if (isInTransaction) this.#failed = { error };
      for (const { reject } of batch) reject?.(error);
      throw error;
    } finally {
      this.#batches--;
    }
  }
}

const NOTHING: DriverResult = { rows: [], affectedRows: 0, insertId: undefined };

function sqlOf(buffer: StatementBuffer, { dialect, tables, isInTransaction, behind }: SqlContext): Sql {
  return {
    dialect,
    tables,
    isInTransaction,
    texts: PLAIN,
    behind,
    all<Row extends object>(text: string, values: readonly unknown[] = []) {
      // Each statement is written for the columns of its `Row`; `values.ts` checks them.
      return buffer.send(text, values, 'rows', ({ rows }) => rows as Row[]);
    },
    async run(text, values = []) {
      const { affectedRows, insertId } = await buffer.send(text, values, 'change', (result) => result);
      return { affectedRows: numberOf(affectedRows), insertId: insertId === undefined ? 0 : wholeNumber(insertId) };
    },
    later: (text, values) => buffer.later(text, values),
  };
}

/** Above 2^53 a driver would have rounded it. */
function wholeNumber(value: unknown): number {
  const number = numberOf(value);
  if (!Number.isSafeInteger(number)) throw new Error(`The driver gave ${typeof value} where a number should be`);
  return number;
}
