import type { DialectName } from '../../../entities/dialect-name.js';
import type { Driver, DriverResult, StatementContext } from './driver.js';
import { withLiterals } from './mysql-driver.js';
import { numbered } from './node-postgres.js';

/** The member of a connection of kysely that is used. There is one object for each physical connection. */
export interface KyselyDriverConnection {
  executeQuery(query: { sql: string; parameters: readonly unknown[] }): Promise<KyselyResult>;
}

interface KyselyResult {
  rows: object[];
  numAffectedRows?: bigint;
  insertId?: bigint;
}

/** Where kysely keeps the driver to itself: PGlite, and a kysely that the host has made. */
export class KyselyDriver implements Driver {
  readonly reportsChangedRows = false;
  readonly #connection: KyselyDriverConnection;
  readonly #dialect: DialectName | undefined;

  constructor(connection: KyselyDriverConnection, dialect: DialectName | undefined) {
    this.#connection = connection;
    this.#dialect = dialect;
  }

  async send(text: string, values: readonly unknown[], _: StatementContext): Promise<DriverResult> {
    const { rows, numAffectedRows, insertId } = await this.#connection.executeQuery(this.#query(text, values));
    return { rows, affectedRows: numAffectedRows ?? 0, insertId };
  }

  #query(text: string, values: readonly unknown[]): { sql: string; parameters: readonly unknown[] } {
    switch (this.#dialect) {
      case 'postgresql':
        return { sql: numbered(text), parameters: values };
      case 'sqlite':
        return { sql: text, parameters: values };
      default:
        // kysely would have mysql2 put the values into the text.
        return { sql: withLiterals(text, values), parameters: [] };
    }
  }
}
