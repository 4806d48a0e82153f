import { LastUsed } from '../../model/last-used.js';
import { KEPT_STATEMENTS, type Driver, type DriverResult, type Statement, type StatementContext } from './driver.js';
import { isObject } from '../../model/json.js';

/** A statement, with options that override those of the host's driver that change the shape of rows. */
export interface MysqlStatement {
  sql: string;
  values?: readonly unknown[];
  rowsAsArray: false;
  nestTables: false;
}

/** The servers' flag SERVER_STATUS_IN_TRANS. */
export const IN_TRANSACTION = 1;

export type Callback = (error: Error | null, result: unknown) => void;

/**
 * Prepared statements of the drivers mysql2 and mariadb. If the server cannot prepare a statement, its values are put into the
 * text, as hexadecimal digits: the server's modes and character sets decide where a text in quotes ends (contract O7).
 */
export abstract class MysqlDriver implements Driver {
  abstract readonly reportsChangedRows: boolean;
  readonly #statements = new LastUsed<true>(KEPT_STATEMENTS, (_, text) => this.unprepare(text));

  /** Runs a prepared statement, and prepares it on its first use. */
  protected abstract execute(text: string, values: readonly unknown[], callback: Callback): void;

  /** Runs a text without values. */
  protected abstract query(text: string, callback: Callback): void;

  /** Forgets the prepared statement of this text. */
  protected abstract unprepare(text: string): void;

  async send({ text, values }: Statement, _: StatementContext): Promise<DriverResult> {
    return resultOf(await this.#send(text, values));
  }

  async sendBlock(text: string, statements: readonly Statement[]): Promise<DriverResult[]> {
    const sent = await this.#send(
      text,
      statements.flatMap(({ values }) => values),
    );
    const sets = (Array.isArray(sent) ? sent : []).filter(Array.isArray).values();
    return statements.map(({ wants }) => {
      const rows = (wants ? sets.next().value : undefined) as object[] | undefined;
      if (wants === 'rows') return { rows: rows ?? [], affectedRows: 0, insertId: undefined };
      const { affected_rows: affectedRows = 0, insert_id: insertId }: Record<string, unknown> = { ...rows?.[0] };
      return { rows: [], affectedRows, insertId };
    });
  }

  /** @returns what the driver gives: rows, a report of a change, or for a block its sets of rows and a report. */
  async #send(text: string, values: readonly unknown[]): Promise<unknown> {
    if (values.length === 0) return this.#settled((callback) => this.query(text, callback));
    this.#statements.get(text, () => true);
    try {
      return await this.#settled((callback) => this.execute(text, values, callback));
    } catch (error) {
      if (!UNPREPARED.has(driverNumberOf(error))) throw error;
      this.#statements.delete(text);
      this.unprepare(text);
      return this.#settled((callback) => this.query(withLiterals(text, values), callback));
    }
  }

  #settled(send: (callback: Callback) => void): Promise<unknown> {
    return new Promise((resolve, reject) => {
      send((error, result) => {
        if (error) reject(error);
        else resolve(result);
      });
    });
  }
}

/** The server's number of an error, which both drivers pass on; NaN for other errors. */
export function driverNumberOf(error: unknown): number {
  return isObject(error) && 'errno' in error ? Number(error.errno) : Number.NaN;
}

/**
 * Errors with which the server has not run the statement: it has forgotten it, has no room for another (`max_prepared_stmt_count`),
 * would have to prepare it again, or cannot prepare such a statement.
 */
const UNPREPARED: ReadonlySet<number> = new Set([1243, 1461, 1615, 1295]);

function resultOf(result: unknown): DriverResult {
  if (!Array.isArray(result)) {
    const { affectedRows, insertId }: { affectedRows?: unknown; insertId?: unknown } = result ?? {};
    return { rows: [], affectedRows, insertId };
  }
  return { rows: firstRows(result), affectedRows: 0, insertId: undefined };
}

/** The rows of a result. A block of MariaDB returns several results; its rows are in the first. */
export function firstRows(result: readonly unknown[]): object[] {
  return (Array.isArray(result[0]) ? result[0] : result) as object[];
}

export function withLiterals(text: string, values: readonly unknown[]): string {
  let i = 0;
  return text.replaceAll('?', () => literal(values[i++]));
}

function literal(value: unknown): string {
  if (typeof value === 'string') return `_utf8mb4 x'${Buffer.from(value).toString('hex')}'`;
  if (Buffer.isBuffer(value)) return `x'${value.toString('hex')}'`;
  return value === null || value === undefined ? 'null' : Number(value).toString();
}
