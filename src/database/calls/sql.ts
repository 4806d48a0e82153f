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
import type { Driver, DriverResult, Statement, StatementContext } from '../drivers/driver.js';
import { now, setImmediate } from '../../model/clock.js';
import { callHost } from '../../model/host-callbacks.js';
import { isObject } from '../../model/json.js';
import type { Dialect } from '../dialects/dialect.js';
import { textLength } from '../dialects/session-rows.js';

interface Outcome {
  results?: number;
  affected?: unknown;
  level?: 'error';
}

/** What statements are sent with. */
export interface SentContext extends Omit<StatementContext, 'wants'> {
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
    text: string,
    values: readonly unknown[],
    context: StatementContext & Partial<SentContext>,
  ): Promise<DriverResult> {
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

  /** Sends statements at once, or one by one if the driver cannot. @returns the results of all. */
  async sendAll(driver: Driver, all: readonly Statement[], context: SentContext): Promise<DriverResult[]> {
    const together = togetherOn(driver, all, context);
    if (!together) {
      const results: DriverResult[] = [];
      for (const { prefix = '', text, values, wants = 'change' } of all)
        results.push(await this.send(driver, prefix + text, values, { ...context, wants }));
      return results;
    }
    context.refuse?.();
    const onQuery = this.#config.get('onQuery');
    const sent = all.map((each) => ({ ...each, text: onQuery?.(each.text, [...each.values]) ?? each.text }));
    const start = now();
    try {
      const results = await together(sent);
      for (const [i, { text, values, wants }] of sent.entries()) {
        const { rows, affectedRows } = results[i] ?? {};
        this.#log(text, values, start, wants === 'rows' ? { results: rows?.length ?? 0 } : { affected: affectedRows });
      }
      return results;
    } catch (error) {
      for (const { text, values } of sent) this.#log(text, values, start, { level: 'error' });
      throw this.#converted(error, sent.map(({ text }) => text).join('; '));
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

/** The most values of a statement of MariaDB. */
const MOST_VALUES = 65_535;

type SendsAll = (sent: readonly Statement[]) => Promise<DriverResult[]>;

/** @returns what sends statements at once; undefined if they must be sent one by one. */
function togetherOn(driver: Driver, all: readonly Statement[], context: SentContext): SendsAll | undefined {
  const { sql, limits } = context.dialect;
  // Those of another program have values of any type.
  if (all.length === 1 || context.isForeign) return undefined;
  if (driver.sendAll) return async (sent) => (await driver.sendAll?.(sent, { ...context, wants: 'rows' })) ?? [];
  const { block } = sql;
  if (!block || !driver.sendBlock) return undefined;
  const values = all.flatMap((each) => each.values);
  if (values.length > MOST_VALUES || textLength(values) > (limits?.maxTextLength ?? Infinity)) return undefined;
  return async (sent) => (await driver.sendBlock?.(block(sent), sent)) ?? [];
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
