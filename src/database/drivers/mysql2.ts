import { isObject } from '../../model/json.js';
import { IN_TRANSACTION, MysqlDriver, type Callback, type MysqlStatement } from './mysql-driver.js';

/** The members of mysql2's connection that are used. */
interface Mysql2Connection {
  readonly config: { readonly clientFlags?: number; readonly typeCast?: unknown };
  execute(statement: Mysql2Statement, callback: Callback): unknown;
  query(statement: Mysql2Statement, callback: Callback): unknown;
  unprepare(statement: Mysql2Statement): unknown;
}

interface Mysql2Statement extends MysqlStatement {
  typeCast: boolean | ((field: Field, next: () => unknown) => unknown);
}

/** A value of a row. */
interface Field {
  readonly type: string;
  string(): string | null;
}

export function isMysql2(raw: object): raw is Mysql2Connection {
  return 'execute' in raw && 'unprepare' in raw && 'config' in raw;
}

/** The client's flag CLIENT_FOUND_ROWS. */
const FOUND_ROWS = 2;

export class Mysql2 extends MysqlDriver {
  readonly #connection: Mysql2Connection;
  readonly #options: Omit<Mysql2Statement, 'sql'>;
  isInTransaction: boolean | undefined;

  constructor(connection: Mysql2Connection) {
    super();
    this.#connection = connection;
    // Only another function overrides a function of the host.
    const typeCast = typeof connection.config.typeCast === 'function' ? asItComes : true;
    this.#options = { rowsAsArray: false, nestTables: false, typeCast };
  }

  get reportsChangedRows(): boolean {
    const { clientFlags } = this.#connection.config;
    return clientFlags !== undefined && (clientFlags & FOUND_ROWS) === 0;
  }

  protected execute(sql: string, values: readonly unknown[], callback: Callback) {
    this.#connection.execute({ sql, values: values.map(bound), ...this.#options }, this.#noting(callback));
  }

  protected query(sql: string, callback: Callback) {
    this.#connection.query({ sql, ...this.#options, typeCast: exactly }, this.#noting(callback));
  }

  /** Keeps the status, since rows come without it. */
  #noting(callback: Callback): Callback {
    return (error, result) => {
      // That of a block comes after its rows.
      const report: unknown = Array.isArray(result) ? result.at(-1) : result;
      if (isObject(report) && 'serverStatus' in report)
        this.isInTransaction = (Number(report.serverStatus) & IN_TRANSACTION) !== 0;
      callback(error, result);
    };
  }

  protected unprepare(sql: string) {
    this.#connection.unprepare({ sql, ...this.#options });
  }
}

const asItComes = (_field: Field, next: () => unknown): unknown => next();

/** For rows that come as text: mysql2 would read the last digit of doubles wrong. */
function exactly(field: Field, next: () => unknown): unknown {
  if (field.type !== 'DOUBLE') return next();
  const text = field.string();
  return text === null ? null : Number(text);
}

/** From here on a whole number does not fit into a `bigint`. */
const MOST = 2 ** 63;

/** mysql2 binds each number as a double, which MySQL refuses for a `limit`. */
function bound(value: unknown): unknown {
  const isWhole = typeof value === 'number' && Number.isInteger(value) && Math.abs(value) < MOST;
  return isWhole ? BigInt(value).toString() : value;
}
