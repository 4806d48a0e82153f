import type { DialectName } from '../../../entities/dialect-name.js';
import type { Driver, DriverResult, Statement, StatementContext } from './driver.js';
import { firstRows, withLiterals } from './mysql-driver.js';
import { numbered } from './node-postgres.js';

/** The member of kysely's connection that is used. There is one object for each physical connection. */
export interface KyselyDriverConnection {
  executeQuery(query: { sql: string; parameters: readonly unknown[] }): Promise<KyselyResult>;
}

interface KyselyResult {
  rows: object[];
  numAffectedRows?: bigint;
  insertId?: bigint;
}

type Query = Parameters<KyselyDriverConnection['executeQuery']>[0];

type QueryOf = (text: string, values: readonly unknown[]) => Query;

/** With kysely, mysql2 would put the values into the text itself. */
const queryWithLiterals: QueryOf = (text, values) => ({ sql: withLiterals(text, values), parameters: [] });

const QUERIES: Readonly<Record<DialectName, QueryOf>> = {
  sqlite: (text, values) => ({ sql: text, parameters: values }),
  postgresql: (text, values) => ({ sql: numbered(text), parameters: values }),
  mysql: queryWithLiterals,
  mariadb: queryWithLiterals,
};

/** For connections whose driver kysely does not show: PGlite, and a kysely that the host has made. */
export class KyselyDriver implements Driver {
  readonly #connection: KyselyDriverConnection;
  readonly #queryOf: QueryOf;

  constructor(connection: KyselyDriverConnection, dialect: DialectName) {
    this.#connection = connection;
    this.#queryOf = QUERIES[dialect];
  }

  async send({ text, values }: Statement, _: StatementContext): Promise<DriverResult> {
    const { rows, numAffectedRows, insertId } = await this.#connection.executeQuery(this.#queryOf(text, values));
    return { rows: firstRows(rows), affectedRows: numAffectedRows ?? 0, insertId };
  }
}
