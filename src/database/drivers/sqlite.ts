import { LastUsed } from '../../model/last-used.js';
import { driverCodeOf } from '../../model/errors.js';
import { KEPT_STATEMENTS, type Driver, type DriverResult, type Statement, type StatementContext } from './driver.js';
import { isObject } from '../../model/json.js';

/** The members of a synchronous SQLite driver that are used; better-sqlite3 and libSQL have them. */
export interface SynchronousSqlite {
  /** In memory nobody else can have a lock. */
  memory?: unknown;
  readonly open: boolean;
  readonly inTransaction: boolean;
  pragma(source: string): unknown;
  exec(source: string): unknown;
  prepare(text: string): SynchronousStatement;
}

interface SynchronousStatement {
  /** Whether it returns rows. */
  readonly reader: boolean;
  raw(isOn: boolean): unknown;
  columns(): readonly { name: string }[];
  /** With `raw`. */
  all(values: readonly unknown[]): unknown[][];
  get(values: readonly unknown[]): unknown;
  run(values: readonly unknown[]): { changes: number };
  safeIntegers?(isOn: boolean): unknown;
}

interface Prepared {
  statement: SynchronousStatement;
  /** Of one that returns rows. */
  columns?: readonly string[];
}

export function isSynchronousSqlite(raw: unknown): raw is SynchronousSqlite {
  return isObject(raw) && 'pragma' in raw && 'prepare' in raw;
}

function isLibSql(raw: object): boolean {
  return 'sync' in raw;
}

/** Whether a wait for a lock would block the process, including another holder of the lock in it. */
export function stopsProcess(database: SynchronousSqlite): boolean {
  return database.memory !== true;
}

/** How long statements wait for a lock. */
export interface LockTimeout {
  /** Makes statements fail at once if they meet a lock. */
  remove(): void;
  /** Makes them wait again as long as before `remove`. */
  restore(): void;
}

export function lockTimeoutOf(database: SynchronousSqlite): LockTimeout {
  // SQLite compiles this pragma each time it runs, so it has the current value. To prepare it again takes the drivers longer.
  let read: SynchronousStatement | undefined;
  let removed: { timeout: number | bigint } | undefined;
  return {
    remove() {
      // The drivers throw a TypeError, as for a caller's mistake.
      if (!database.open) throw new Error('The database connection is not open');
      if (removed) return;
      // libSQL cannot return the number alone.
      removed = (read ??= database.prepare('pragma busy_timeout')).get([]) as { timeout: number | bigint };
      // `exec` makes no object for a statement.
      database.exec('pragma busy_timeout = 0');
    },
    restore() {
      // The host may have closed it meanwhile. If this threw, the connection would never be free for the calls that wait for it.
      if (removed && database.open) database.exec(`pragma busy_timeout = ${removed.timeout}`);
      removed = undefined;
    },
  };
}

/** better-sqlite3 and libSQL. */
export class SynchronousDriver implements Driver {
  readonly #statements = new LastUsed<Prepared>(KEPT_STATEMENTS);
  readonly #database: SynchronousSqlite;

  constructor(database: SynchronousSqlite) {
    this.#database = database;
  }

  get isInTransaction(): boolean {
    return this.#database.inTransaction;
  }

  send({ text, values }: Statement): DriverResult {
    return this.#run(text, values);
  }

  sendAll(statements: readonly Statement[]): DriverResult[] {
    return statements.map(({ text, values }) => this.#run(text, values));
  }

  #run(text: string, values: readonly unknown[]): DriverResult {
    const { statement, columns } = this.#statements.get(text, () => this.#prepared(text));
    try {
      if (!columns) return { rows: [], affectedRows: statement.run(values).changes, insertId: undefined };
      return { rows: objectsOf(columns, statement.all(values)), affectedRows: 0, insertId: undefined };
    } catch (error) {
      this.#statements.delete(text);
      if (isLibSql(this.#database) && driverCodeOf(error)?.startsWith('SQLITE_BUSY')) this.#reset(statement, values);
      throw error;
    }
  }

  /**
   * Ends a statement that met a lock. libSQL leaves it open until it is garbage-collected (tursodatabase/libsql-js#237); until then
   * the connection reads old rows, and every commit on it fails. Running the statement again ends it; with `query_only` it fails
   * before it waits for the lock or writes anything.
   */
  #reset(statement: SynchronousStatement, values: readonly unknown[]): void {
    this.#database.pragma('query_only = on');
    try {
      statement.get(values);
    } catch {
      // The expected failure, which has ended it.
    } finally {
      this.#database.pragma('query_only = off');
    }
  }

  #prepared(text: string): Prepared {
    const statement = this.#database.prepare(text);
    // The host may have asked for bigints by default.
    statement.safeIntegers?.(false);
    if (!statement.reader) return { statement };
    // To make objects of 10,000 rows takes the drivers a third longer.
    statement.raw(true);
    return { statement, columns: statement.columns().map(({ name }) => name) };
  }
}

function objectsOf(columns: readonly string[], rows: readonly (readonly unknown[])[]): object[] {
  const objects: object[] = [];
  for (const values of rows) {
    const row: Record<string, unknown> = {};
    for (let i = 0; i < columns.length; i++) row[columns[i] ?? ''] = values[i];
    objects.push(row);
  }
  return objects;
}

/** The members of sqlite3's database that are used: `all` has rows, and `run` a number of changes. */
type AsynchronousSqlite = Record<'all' | 'run', (text: string, values: readonly unknown[], done: Done) => unknown>;

type Done = (this: { changes?: number }, error: Error | null, rows?: object[]) => void;

export function isAsynchronousSqlite(raw: object): raw is AsynchronousSqlite {
  return 'all' in raw && 'run' in raw && 'each' in raw;
}

/** sqlite3 cannot close a database that has prepared statements, so none is kept. */
export class AsynchronousDriver implements Driver {
  readonly #database: AsynchronousSqlite;

  constructor(database: AsynchronousSqlite) {
    this.#database = database;
  }

  send({ text, values, wants }: Statement, _: StatementContext): Promise<DriverResult> {
    return new Promise((resolve, reject) => {
      this.#database[wants === 'rows' ? 'all' : 'run'](text, values, function (error, rows = []) {
        // MikroORM may have rolled back already, which this driver does not show.
        if (error && !(text === 'rollback' && error.message.endsWith('no transaction is active'))) reject(error);
        else resolve({ rows, affectedRows: this.changes ?? 0, insertId: undefined });
      });
    });
  }
}
