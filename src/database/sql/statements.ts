import { DriverException, type Configuration, type EntityManager, type ExceptionConverter } from '@mikro-orm/core';
import type { Driver, DriverResult, StatementContext } from '../drivers/driver.js';
import { isObject } from '../../model/objects.js';

/** A connection of MikroORM, as far as it is used. It logs what is run by `executeQuery`, and how long that took. */
interface LoggingConnection {
  executeQuery(
    shown: string,
    run: () => Promise<unknown>,
    context: { query: string; params: readonly unknown[] },
  ): Promise<unknown>;
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

  async send(
    driver: Driver,
    given: string,
    values: readonly unknown[],
    context: StatementContext,
  ): Promise<DriverResult> {
    const query = this.#config.get('onQuery')?.(given, [...values]) ?? given;
    let result: DriverResult | undefined;
    const run = async () => {
      result = await driver.send(query, values, context);
      return context.wants === 'rows' ? result.rows : { affectedRows: result.affectedRows };
    };
    try {
      await this.#connection.executeQuery(this.#shown(query, values), run, { query, params: values });
    } catch (error) {
      throw this.#converted(error, query);
    }
    if (!result) throw new TypeError('MikroORM has not run the statement');
    return result;
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
