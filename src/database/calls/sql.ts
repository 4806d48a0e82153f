import {
  DefaultLogger,
  DriverException,
  SimpleLogger,
  type Configuration,
  type EntityManager,
  type ExceptionConverter,
  type LogContext,
  type Logger,
} from '@mikro-orm/core';
import type { Bound, Driver, DriverResult, StatementContext } from '../drivers/driver.js';
import { now, setImmediate } from '../../model/clock.js';
import { callHost } from '../../model/host-callbacks.js';
import { isObject } from '../../model/json.js';
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
    async together(sent) {
      const results = await statements.sendAll(driver, sent, { ...context, wants: 'rows' });
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
  readonly #converter: ExceptionConverter;
  readonly #format: (text: string, values: readonly unknown[]) => string;

  constructor(em: EntityManager) {
    const platform = em.getPlatform();
    this.#config = em.config;
    this.#converter = platform.getExceptionConverter();
    this.#format = (text, values) => platform.formatQuery(text, values);
  }

  async send(driver: Driver, text: string, values: readonly unknown[], context: SentContext): Promise<DriverResult> {
    if (context.isInProcess && now() - lastTurn >= MOST_MS) await (turning ??= turn());
    context.refuse?.();
    const query = this.#config.get('onQuery')?.(text, [...values]) ?? text;
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
  async sendAll(driver: Driver, bound: readonly Bound[], context: SentContext): Promise<DriverResult[]> {
    if (!driver.sendAll) {
      const results: DriverResult[] = [];
      for (const [text, values] of bound) results.push(await this.send(driver, text, values, context));
      return results;
    }
    context.refuse?.();
    const onQuery = this.#config.get('onQuery');
    const sent = bound.map(([text, values]) => [onQuery?.(text, [...values]) ?? text, values] as const);
    const start = now();
    try {
      const results = await driver.sendAll(sent, context);
      for (const [text, values] of sent) this.#log(text, values, start, {});
      return results;
    } catch (error) {
      for (const [text, values] of sent) this.#log(text, values, start, { level: 'error' });
      throw this.#converted(error, sent.map(([text]) => text).join('; '));
    }
  }

  #log(query: string, params: readonly unknown[], start: number, what: Outcome): void {
    try {
      logQuery(this.#config, { query, params, took: Math.round(now() - start), ...what }, this.#format);
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

/** Without `instanceof`, which is false for errors of native code under jest. */
function isError(error: unknown): error is Error {
  return isObject(error) && 'message' in error;
}

/** The member of MikroORM's own logger that is used: the host's `logger`. */
interface WritingLogger extends Logger {
  writer?: (message: string) => unknown;
}

/** The members of MikroORM 7's config that are used. */
interface SlowQueries {
  get(option: 'slowQueryThreshold'): number | undefined;
  getSlowQueryLogger(): Logger;
}

interface SentQuery extends Outcome {
  query: string;
  params: readonly unknown[];
  /** In ms. */
  took: number;
}

/** Shows a statement in the host's log like MikroORM. @param format puts the values into the text. */
function logQuery(
  config: Configuration,
  sent: SentQuery,
  format: (text: string, values: readonly unknown[]) => string,
): void {
  const logger = config.getLogger();
  const query = logger.isEnabled('query-params') ? format(sent.query, sent.params) : sent.query;
  const connection = { type: 'write', name: config.get('name') };
  const context = { level: 'info', connection, ...sent, query } as LogContext & SentQuery;
  write(logger, context);
  if (!hasSlowQueries(config)) return;
  const threshold = config.get('slowQueryThreshold');
  if (typeof threshold !== 'number' || sent.took < threshold) return;
  const { level = 'warning' } = sent;
  const slow = { enabled: true, level, namespace: 'slow-query' };
  write(config.getSlowQueryLogger(), { ...context, ...slow } as LogContext & SentQuery);
}

function hasSlowQueries(config: object): config is SlowQueries {
  return 'getSlowQueryLogger' in config;
}

/** MikroORM's loggers ignore the result of the host's function, and a promise that rejects would end the process. */
function write(logger: WritingLogger, context: LogContext & SentQuery): void {
  const { writer } = logger;
  const prototype: unknown = Object.getPrototypeOf(logger);
  const isMikroOrms = prototype === DefaultLogger.prototype || prototype === SimpleLogger.prototype;
  if (!writer || !isMikroOrms) callHost((given: typeof context) => logger.logQuery(given), context);
  else if (logger.isEnabled('query', context)) {
    const own = Object.create(logger, { writer: { value: (message: string) => callHost(writer, message) } }) as Logger;
    own.logQuery(context);
  }
}
