import { createHash } from 'node:crypto';
import { driverCodeOf } from '../../model/errors.js';
import { LastUsed } from '../../model/last-used.js';
import { KEPT_STATEMENTS, type Driver, type DriverResult, type StatementContext } from './driver.js';

/** The members of a client of node-postgres that are used. */
interface PostgresClient {
  /** Whether results are asked for in binary; it overrides what a query says. */
  binary?: boolean;
  query(query: PostgresQuery, values: undefined, done: (error: Error | null, result: PostgresResult) => void): unknown;
  readonly connection: { on(event: 'readyForQuery', listener: (message: { status: string }) => void): unknown };
}

interface PostgresQuery {
  /** Undefined for a statement that the server forgets. */
  name?: string;
  text: string;
  values: readonly unknown[];
  types: typeof TYPES | undefined;
}

interface PostgresResult {
  rows: object[];
  rowCount: number | null;
}

export function isPostgresClient(raw: object): raw is PostgresClient {
  return 'query' in raw && 'connection' in raw && 'processID' in raw;
}

/** The types `smallint`, `integer` and `double precision`. */
const NUMBERS: ReadonlySet<number> = new Set([21, 23, 701]);

const asItIs = (value: string) => value;

/** Other values come as the server writes them, whatever parsers the host has set. */
const TYPES = {
  getTypeParser: (type: number): ((value: string) => string | number) => (NUMBERS.has(type) ? Number : asItIs),
};

/** The server does not have the prepared statement, has it already, or it was made before a migration. None was run. */
const NOT_PREPARED = '26000';
const PREPARED_ALREADY = '42P05';
const OUTDATED = '0A000';

/**
 * After so many missing statements a connection prepares no more. Behind a pooler with several connections the server keeps
 * each name of a statement until it ends the connection: each further use that is in vain would leave one more of them.
 */
const FORGOTTEN = 3;

/** A statement with `$1` for its first value. */
interface Statement {
  text: string;
  name: string;
}

/**
 * node-postgres with named prepared statements: planning an append takes the server longer than running it. They are used
 * outside of transactions, where the error of a missing statement does no harm.
 */
export class NodePostgres implements Driver {
  readonly reportsChangedRows = false;
  readonly #client: PostgresClient;
  readonly #statements = new LastUsed<Statement>(KEPT_STATEMENTS, ({ name }) => this.#deallocate(name));
  #replaced = 0;
  #forgotten = 0;
  isInTransaction: boolean | undefined;

  constructor(client: PostgresClient) {
    this.#client = client;
    client.connection.on('readyForQuery', ({ status }) => {
      this.isInTransaction = status === 'T';
    });
  }

  async send(text: string, values: readonly unknown[], context: StatementContext): Promise<DriverResult> {
    const isNamed = values.length > 0 && !context.isInTransaction && context.mayPrepare && this.#forgotten < FORGOTTEN;
    const types = context.isForeign ? undefined : TYPES;
    if (!isNamed) return this.#query({ text: numbered(text), values, types });
    const statement = this.#statements.get(text, () => this.#named(text));
    try {
      return await this.#query({ ...statement, values, types });
    } catch (error) {
      const code = driverCodeOf(error);
      if (code === OUTDATED) this.#deallocate(statement.name);
      else if (code === NOT_PREPARED || code === PREPARED_ALREADY) this.#forgotten++;
      else throw error;
      // The client believes that the server has the name: the next use takes another one.
      this.#statements.delete(text);
      this.#replaced++;
      return this.#query({ text: statement.text, values, types });
    }
  }

  /** The name has a hash of the text: behind a pooler two versions of this package may share a connection. */
  #named(text: string): Statement {
    const hash = createHash('sha256').update(text).digest('hex').slice(0, 16);
    return {
      name: `adk_${hash}${this.#replaced > 0 ? `_${this.#replaced}` : ''}`,
      text: numbered(text),
    };
  }

  #deallocate(name: string): void {
    this.#query({ text: `deallocate ${name}`, values: [], types: TYPES }).catch(() => undefined);
  }

  #query(query: PostgresQuery): Promise<DriverResult> {
    const client = this.#client;
    return new Promise((resolve, reject) => {
      const { binary } = client;
      if (binary) client.binary = false;
      client.query(query, undefined, (error, result) => {
        if (error) reject(error);
        else resolve({ rows: result.rows, affectedRows: result.rowCount ?? 0, insertId: undefined });
      });
      if (binary) client.binary = binary;
    });
  }
}

export function numbered(text: string): string {
  let number = 0;
  return text.replaceAll('?', () => `$${++number}`);
}
