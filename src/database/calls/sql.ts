import {
  DriverException,
  type Configuration,
  type EntityManager,
  type ExceptionConverter,
  type Logger,
} from '@mikro-orm/core';
import type { BoundStatement, Driver, DriverResult, StatementContext } from '../drivers/driver.js';
import { now, setImmediate } from '../../model/clock.js';
import { callHost } from '../../model/host-callbacks.js';
import { isObject } from '../../model/json.js';
import { processWide } from '../../model/process-wide.js';
import { PLAIN } from '../../model/stored-texts.js';
import type { Dialect, Sql } from '../dialects/dialect.js';
import { type Tables, numberOf } from '../sql/tables.js';

/** What statements need to know about the call that sends them. */
interface SqlContext extends Omit<SentContext, 'wants'> {
  /** The prefix of each statement; see `clusterPrefix`. */
  prefix: string;
  dialect: Dialect;
  behind?: Sql['behind'];
  /** Called when a statement needs the tables; another program's database has none. */
  tables: () => Tables;
}

export function sqlOf(statements: Statements, driver: Driver, context: SqlContext): Sql {
  const { isInTransaction, prefix, behind, dialect, tables } = context;
  return {
    dialect,
    get tables() {
      return tables();
    },
    isInTransaction,
    texts: PLAIN,
    behind,
    async all<Row extends object>(text: string, values: readonly unknown[] = []) {
      const { rows } = await statements.send(driver, prefix + text, values, { ...context, wants: 'rows' });
      // Each statement is written for the columns of its `Row`; `tables.ts` checks their values.
      return rows as Row[];
    },
    async run(text, values = []) {
      const sent = statements.send(driver, prefix + text, values, { ...context, wants: 'change' });
      const { affectedRows, insertId } = await sent;
      return { affectedRows: numberOf(affectedRows), insertId: insertId === undefined ? 0 : wholeNumber(insertId) };
    },
    async together(given) {
      const results = await statements.sendAll(driver, given, { ...context, wants: 'rows' });
      return results.map(({ rows }) => rows);
    },
  };
}

/** Above 2^53 a driver would have rounded it. */
function wholeNumber(value: unknown): number {
  const number = numberOf(value);
  if (!Number.isSafeInteger(number)) throw new Error(`The driver gave ${typeof value} where a number should be`);
  return number;
}

/** The members of MikroORM's connection that are used. They are protected in its types. */
interface LoggingConnection {
  /** Runs a statement, and calls `logQuery` after it. */
  executeQuery(...args: unknown[]): Promise<unknown>;
  logQuery(shown: string, context: QueryLogContext): void;
}

/** The member of MikroORM's own logger that is used: the host's `logger`. */
interface WritingLogger {
  writer?: (message: string) => unknown;
}

interface QueryLogContext extends Outcome {
  query: string;
  params: readonly unknown[];
  /** In ms. */
  took: number;
}

interface Outcome {
  results?: number;
  affected?: unknown;
  level?: 'error';
}

/** What a statement is sent with. */
interface SentContext extends StatementContext {
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
  readonly #connection: LoggingConnection;
  readonly #converter: ExceptionConverter;
  readonly #errors: WeakSet<object>;
  readonly #format: (text: string, values: readonly unknown[]) => string;

  constructor(em: EntityManager) {
    const platform = em.getPlatform();
    this.#config = em.config;
    this.#connection = em.getConnection() as unknown as LoggingConnection;
    this.#converter = platform.getExceptionConverter();
    this.#errors = errorsOf(this.#connection, this.#converter);
    this.#format = (text, values) => platform.formatQuery(text, values);
  }

  async send(driver: Driver, given: string, values: readonly unknown[], context: SentContext): Promise<DriverResult> {
    if (context.isInProcess && now() - lastTurn >= MOST_MS) await (turning ??= turn());
    context.refuse?.();
    const query = this.#config.get('onQuery')?.(given, [...values]) ?? given;
    const start = now();
    try {
      const result = await driver.send(query, values, context);
      const { rows, affectedRows } = result;
      this.#log(query, values, start, context.wants === 'rows' ? { results: rows.length } : { affected: affectedRows });
      return result;
    } catch (error) {
      this.#log(query, values, start, { level: 'error' });
      throw this.#converted(error, query);
    }
  }

  /** Sends statements at once, or one by one where the driver cannot. @returns the results of all. */
  async sendAll(driver: Driver, given: readonly BoundStatement[], context: SentContext): Promise<DriverResult[]> {
    if (!driver.sendAll) {
      const results: DriverResult[] = [];
      for (const { text, values } of given) results.push(await this.send(driver, text, values, context));
      return results;
    }
    context.refuse?.();
    const onQuery = this.#config.get('onQuery');
    const sent = given.map(({ text, values }) => ({ text: onQuery?.(text, [...values]) ?? text, values }));
    const start = now();
    try {
      const results = await driver.sendAll(sent, context);
      for (const { text, values } of sent) this.#log(text, values, start, {});
      return results;
    } catch (error) {
      for (const { text, values } of sent) this.#log(text, values, start, { level: 'error' });
      throw this.#converted(error, sent.map(({ text }) => text).join('; '));
    }
  }

  #log(query: string, params: readonly unknown[], start: number, what: Outcome): void {
    const logger = this.#config.getLogger() as Logger & WritingLogger;
    const { writer } = logger;
    // MikroORM ignores its result, so a promise that rejects would end the process.
    if (writer) logger.writer = (message) => callHost(writer, message);
    try {
      const shown = logger.isEnabled('query-params') ? this.#format(query, params) : query;
      this.#connection.logQuery(shown, { query, params, took: Math.round(now() - start), ...what });
    } catch {
      // An error of the host's log must not fail the statement.
    } finally {
      if (writer) logger.writer = writer;
    }
  }

  /** Whether a statement on this database, ours or the host's, has thrown this error. */
  hasThrown(error: unknown): boolean {
    return isObject(error) && this.#errors.has(error);
  }

  #converted(error: unknown, query: string): unknown {
    if (error instanceof DriverException || !isError(error)) return error;
    const converted = this.#converter.convertException(error);
    // For the host's log (contract O8).
    if (!('sql' in converted)) Object.assign(converted, { sql: query });
    return converted;
  }
}

const noted = processWide('thrown errors', () => new WeakMap<object, WeakSet<object>>());

/** The errors of an ORM's statements, since errors of another database may have the same classes and codes. */
function errorsOf(connection: LoggingConnection, converter: ExceptionConverter): WeakSet<object> {
  const known = noted.get(connection);
  if (known) return known;
  const errors = new WeakSet<object>();
  noted.set(connection, errors);
  const convert = converter.convertException.bind(converter);
  converter.convertException = (error) => {
    // MikroORM's exceptions read the stack, which errors of sqlite3's native code lack on Bun.
    error.stack ??= '';
    const converted = convert(error);
    errors.add(converted);
    return converted;
  };
  // Statements that are sent on the connection itself, without MikroORM's driver, are not converted.
  const execute = connection.executeQuery.bind(connection);
  connection.executeQuery = async (...args) => {
    try {
      return await execute(...args);
    } catch (error) {
      if (isObject(error)) errors.add(error);
      throw error;
    }
  };
  return errors;
}

/** Without `instanceof`, which is false for errors of native code under jest. */
function isError(error: unknown): error is Error {
  return isObject(error) && 'message' in error;
}
