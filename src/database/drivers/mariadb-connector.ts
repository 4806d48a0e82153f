import { IN_TRANSACTION, MysqlDriver, type Callback, type MysqlStatement } from './mysql-driver.js';

/** The members that are used of the mariadb driver's connection with callbacks. */
interface MariadbConnection {
  readonly info: { readonly clientCapabilities?: bigint; readonly status: number };
  prepare(statement: MariadbStatement, callback: (error: Error | null, prepared: Prepared) => void): unknown;
  query(statement: MariadbStatement, values: readonly unknown[], callback: Callback): unknown;
}

interface Prepared {
  execute(values: readonly unknown[], options: typeof OPTIONS, callback: Callback): unknown;
  /** Gives it back to the driver's cache. */
  close(): void;
}

type MariadbStatement = MysqlStatement & typeof OPTIONS;

export function isMariadb(raw: object): raw is MariadbConnection {
  return 'prepare' in raw && 'info' in raw;
}

const OPTIONS = {
  rowsAsArray: false,
  nestTables: false,
  typeCast: false,
  metaAsArray: false,
  namedPlaceholders: false,
  // Otherwise numbers above 2^53 would be rounded. They come as bigint, and are refused.
  bigIntAsNumber: false,
  insertIdAsNumber: false,
  checkNumberRange: false,
} as const;

/** The client's flag CLIENT_FOUND_ROWS. */
const FOUND_ROWS = 2n;

/** The driver caches prepared statements itself, by default 256 for each connection. */
export class MariadbConnector extends MysqlDriver {
  readonly #connection: MariadbConnection;

  constructor(connection: MariadbConnection) {
    super();
    this.#connection = connection;
  }

  get reportsChangedRows(): boolean {
    const { clientCapabilities } = this.#connection.info;
    return clientCapabilities !== undefined && (clientCapabilities & FOUND_ROWS) === 0n;
  }

  get isInTransaction(): boolean {
    return (this.#connection.info.status & IN_TRANSACTION) !== 0;
  }

  protected execute(sql: string, values: readonly unknown[], callback: Callback) {
    // Don't use the connection's `execute`, which sends the commands to prepare and to run together: if preparing fails since there
    // is no room, MariaDB runs the last prepared statement with these values.
    this.#connection.prepare({ sql, ...OPTIONS }, (error, prepared) => {
      if (error) {
        callback(error, undefined);
        return;
      }
      prepared.execute(values, OPTIONS, (failure, result) => {
        prepared.close();
        callback(failure, result);
      });
    });
  }

  protected query(sql: string, callback: Callback) {
    this.#connection.query({ sql, ...OPTIONS }, [], callback);
  }

  protected unprepare() {}
}
