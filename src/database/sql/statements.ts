import { DriverException, type Configuration, type EntityManager, type ExceptionConverter } from '@mikro-orm/core';
import type { Driver, DriverResult, StatementContext } from '../drivers/driver.js';
import { callHost } from '../../model/host-callbacks.js';
import { isPromise, type MaybePromise } from '../../model/maybe-promise.js';
import { isObject } from '../../model/objects.js';

/** The member of a connection of MikroORM that is used: its `executeQuery` calls it after each statement. */
interface LoggingConnection {
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
  readonly #format: (text: string, values: readonly unknown[]) => string;

  constructor(em: EntityManager) {
    const platform = em.getPlatform();
    this.#config = em.config;
    // It is protected in MikroORM's types.
    this.#connection = em.getConnection() as unknown as LoggingConnection;
    this.#converter = platform.getExceptionConverter();
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

/** `instanceof` does not do: an error of native code is none under jest. */
function isError(error: unknown): error is Error {
  return isObject(error) && 'message' in error;
}
