import { DriverException, type Configuration, type EntityManager, type ExceptionConverter } from '@mikro-orm/core';
import type { Driver, DriverResult, StatementContext } from '../drivers/driver.js';
import { callHost } from '../../model/host-callbacks.js';
import { isPromise, type MaybePromise } from '../../model/maybe-promise.js';
import { isObject } from '../../model/objects.js';

/** The members of a connection of MikroORM that are used. They are protected in its types. */
interface LoggingConnection {
  /** Runs a statement, and calls `logQuery` after it. */
  executeQuery(...args: unknown[]): Promise<unknown>;
  logQuery(shown: string, context: QueryLogContext): void;
}

/** The member of MikroORM's own logger that is used: the host's `logger`. */
interface WritingLogger {
  writer?: (message: string) => unknown;
}

interface QueryLogContext {
  query: string;
  params: readonly unknown[];
  /** In ms. */
  took: number;
  results?: number | undefined;
  affected?: unknown;
  level?: 'error';
}

/** Sends statements to a driver's connection as MikroORM does: with the host's `onQuery`, its log, and errors of its classes. */
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

  /** @returns the result itself where the driver gives no promise of it. */
  send(
    driver: Driver,
    given: string,
    values: readonly unknown[],
    context: StatementContext,
  ): MaybePromise<DriverResult> {
    const query = this.#config.get('onQuery')?.(given, [...values]) ?? given;
    const start = Date.now();
    const log = (what: Pick<QueryLogContext, 'results' | 'affected' | 'level'>) =>
      callHost(() => this.#log(query, { query, params: values, took: Date.now() - start, ...what }));
    const answered = (result: DriverResult) => {
      log(context.wants === 'rows' ? { results: result.rows.length } : { affected: result.affectedRows });
      return result;
    };
    const failed = (error: unknown): never => {
      log({ level: 'error' });
      throw this.#converted(error, query);
    };
    let sent: MaybePromise<DriverResult>;
    try {
      sent = driver.send(query, values, context);
    } catch (error) {
      return failed(error);
    }
    return isPromise(sent) ? sent.then(answered, failed) : answered(sent);
  }

  #log(query: string, context: QueryLogContext): void {
    const logger = this.#config.getLogger() as WritingLogger;
    const { writer } = logger;
    // MikroORM drops what it returns, so that a promise which rejects would end the process.
    if (writer) logger.writer = (message) => callHost(writer, message);
    try {
      this.#connection.logQuery(this.#shown(query, context.params), context);
    } finally {
      if (writer) logger.writer = writer;
    }
  }

  /** Whether this is an error of a statement on this database, of ours or of the host's. */
  hasThrown(error: unknown): boolean {
    return isObject(error) && this.#errors.has(error);
  }

  /** What the host's log shows of a statement. */
  #shown(query: string, values: readonly unknown[]): string {
    return this.#config.getLogger().isEnabled('query-params') ? this.#format(query, values) : query;
  }

  #converted(error: unknown, query: string): unknown {
    if (error instanceof DriverException || !isError(error)) return error;
    const converted = this.#converter.convertException(error);
    // For the host's log (contract O8).
    if (!('sql' in converted)) Object.assign(converted, { sql: query });
    return converted;
  }
}

const noted = new WeakMap<object, WeakSet<object>>();

/** The errors of an ORM's statements: those of another database may have the same classes and codes. */
function errorsOf(connection: LoggingConnection, converter: ExceptionConverter): WeakSet<object> {
  const known = noted.get(connection);
  if (known) return known;
  const errors = new WeakSet<object>();
  noted.set(connection, errors);
  const convert = converter.convertException.bind(converter);
  converter.convertException = (error) => {
    const converted = convert(error);
    errors.add(converted);
    return converted;
  };
  // Not converted is what the connection itself is asked for.
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

/** `instanceof` does not do: an error of native code is none under jest. */
function isError(error: unknown): error is Error {
  return isObject(error) && 'message' in error;
}
