import { createHash } from 'node:crypto';
import { driverCodeOf } from '../../model/errors.js';
import { LastUsed } from '../../model/last-used.js';
import { KEPT_STATEMENTS, type Driver, type DriverResult, type Statement, type StatementContext } from './driver.js';

/** The members of node-postgres' client that are used. */
interface PostgresClient {
  /** Whether to ask for results in binary; it overrides the query's own setting. */
  binary?: boolean;
  query(query: PostgresQuery, values: undefined, done: (error: Error | null, result: PostgresResult) => void): unknown;
  query(pipeline: Pipeline): unknown;
  readonly connection: PostgresConnection;
}

interface PostgresConnection {
  on(event: 'readyForQuery', listener: (message: { status: string }) => void): unknown;
  /** The texts that the server has prepared, by their names. */
  readonly parsedStatements: Record<string, string>;
  readonly stream: { cork(): void; uncork(): void };
  parse(message: { name: string; text: string; types: readonly number[] }): void;
  bind(message: { portal: string; statement: string; values: readonly (string | Buffer | null)[] }): void;
  describe(message: { type: 'P'; name: string }): void;
  execute(message: { portal: string; rows: number }): void;
  sync(): void;
}

interface PostgresQuery {
  /** Undefined for a statement that the server does not keep. */
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

/** Other values are returned as the server writes them, whatever parsers the host has set. */
const TYPES = {
  getTypeParser: (type: number): ((value: string) => string | number) => (NUMBERS.has(type) ? Number : asItIs),
};

/** The server does not have the prepared statement, has it already, or prepared it before a migration. It was not run. */
const NOT_PREPARED = '26000';
const PREPARED_ALREADY = '42P05';
const OUTDATED = '0A000';

/**
 * After this many missing statements a connection stops preparing. Behind a pooler, each of several server connections keeps every
 * name until it is closed, so each further failed use would leave one more statement.
 */
const FORGOTTEN = 3;

/** A statement with `$1` for its first value. */
interface Named {
  text: string;
  name: string;
}

interface SentStatement extends Named {
  values: readonly unknown[];
}

/**
 * node-postgres with named prepared statements, since planning an append takes the server longer than running it. They are used
 * outside transactions, where the error of a missing statement does no harm.
 */
export class NodePostgres implements Driver {
  readonly #client: PostgresClient;
  readonly #statements = new LastUsed<Named>(KEPT_STATEMENTS, ({ name }) => this.#dropped.push(name));
  /** Names of statements that the server need not keep. */
  readonly #dropped: string[] = [];
  #replaced = 0;
  #forgotten = 0;
  isInTransaction: boolean | undefined;
  hasFailed = false;

  constructor(client: PostgresClient) {
    this.#client = client;
    client.connection.on('readyForQuery', ({ status }) => {
      this.isInTransaction = status === 'T';
      this.hasFailed = status === 'E';
    });
  }

  async send({ text, values }: Statement, context: StatementContext): Promise<DriverResult> {
    const isNamed = values.length > 0 && !context.isInTransaction && context.mayPrepare && this.#forgotten < FORGOTTEN;
    const types = context.isForeign ? undefined : TYPES;
    if (!isNamed) return this.#query({ text: numbered(text), values, types });
    const { name, text: numberedText } = this.#statements.get(text, () => this.#named(text));
    if (this.#dropped.length > 0) await this.#deallocate();
    try {
      return await this.#query({ name, text: numberedText, values, types });
    } catch (error) {
      const code = driverCodeOf(error);
      if (code === OUTDATED) this.#dropped.push(name);
      else if (code === NOT_PREPARED || code === PREPARED_ALREADY) this.#forgotten++;
      else throw error;
      // The client believes that the server has this name, so the next use takes another one.
      this.#statements.delete(text);
      this.#replaced++;
      return this.#query({ text: numberedText, values, types });
    }
  }

  /** Prepared statements that are sent for the first time on the connection are sent one by one. */
  async sendAll(statements: readonly Statement[], { preparesAll }: StatementContext): Promise<DriverResult[]> {
    const { parsedStatements } = this.#client.connection;
    const isNamed = preparesAll && this.#forgotten < FORGOTTEN;
    const sent = statements.map(({ text, values }) => {
      if (!isNamed || values.length === 0) return { name: '', text: numbered(text), values };
      return { ...this.#statements.get(text, () => this.#named(text)), values };
    });
    if (this.#dropped.length > 0 && !this.isInTransaction) await this.#deallocate();
    try {
      if (sent.every(({ name }) => name === '' || parsedStatements[name] !== undefined))
        return await this.#pipeline(sent);
      const results: DriverResult[] = [];
      for (const { name, text, values } of sent)
        results.push(await this.#query({ ...(name !== '' && { name }), text, values, types: TYPES }));
      return results;
    } catch (error) {
      const code = driverCodeOf(error);
      if (code === NOT_PREPARED || code === PREPARED_ALREADY) {
        for (const { text } of statements) this.#statements.delete(text);
        this.#replaced++;
        this.#forgotten++;
      }
      throw error;
    }
  }

  #pipeline(sent: readonly SentStatement[]): Promise<DriverResult[]> {
    return new Promise((resolve, reject) => {
      this.#client.query(new Pipeline(sent, (error, results) => (error ? reject(error) : resolve(results))));
    });
  }

  /** The name has a hash of the text, since behind a pooler two versions of this package may share a connection. */
  #named(text: string): Named {
    const hash = createHash('sha256').update(text).digest('hex').slice(0, 16);
    return {
      name: `adk_${hash}${this.#replaced > 0 ? `_${this.#replaced}` : ''}`,
      text: numbered(text),
    };
  }

  /** One after the other: node-postgres will not run a query while another one is running. */
  async #deallocate(): Promise<void> {
    for (const name of this.#dropped.splice(0)) {
      // Otherwise the client would not prepare it again.
      delete this.#client.connection.parsedStatements[name];
      await this.#query({ text: `deallocate ${name}`, values: [], types: TYPES }).catch(() => undefined);
    }
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

/** What node-postgres runs as one query: statements that are prepared or have no values. It calls the members whose names it has given. */
class Pipeline {
  readonly #sent: readonly SentStatement[];
  readonly #results: DriverResult[] = [];
  #columns: readonly { name: string; dataTypeID: number }[] = [];
  #rows: object[] = [];
  callback: (error: Error | null, results: DriverResult[]) => void;

  constructor(sent: readonly SentStatement[], callback: Pipeline['callback']) {
    this.#sent = sent;
    this.callback = callback;
  }

  submit(connection: PostgresConnection): void {
    connection.stream.cork();
    try {
      for (const { name, text, values } of this.#sent) {
        if (name === '') connection.parse({ name, text, types: [] });
        connection.bind({ portal: '', statement: name, values: values.map(bound) });
        connection.describe({ type: 'P', name: '' });
        connection.execute({ portal: '', rows: 0 });
      }
      connection.sync();
    } finally {
      connection.stream.uncork();
    }
  }

  handleRowDescription({ fields }: { fields: readonly { name: string; dataTypeID: number }[] }): void {
    this.#columns = fields;
  }

  handleDataRow({ fields }: { fields: readonly (string | null)[] }): void {
    const cells = this.#columns.map(({ name, dataTypeID }, i): [string, unknown] => {
      const text = fields[i] ?? null;
      return [name, text === null ? null : TYPES.getTypeParser(dataTypeID)(text)];
    });
    this.#rows.push(Object.fromEntries(cells));
  }

  handleCommandComplete({ text }: { text: string }): void {
    const rows = this.#rows;
    this.#rows = [];
    this.#results.push({ rows, affectedRows: Number(/\d+$/.exec(text)?.[0] ?? 0), insertId: undefined });
  }

  handleError(error: Error): void {
    this.callback(error, []);
  }

  handleReadyForQuery(): void {
    this.callback(null, this.#results);
  }
}

function bound(value: unknown): string | Buffer | null {
  if (typeof value === 'string') return value;
  if (value === null || value === undefined) return null;
  if (ArrayBuffer.isView(value)) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  // Numbers and booleans as JSON are what the server reads.
  return JSON.stringify(value);
}

export function numbered(text: string): string {
  let number = 0;
  return text.replaceAll('?', () => `$${++number}`);
}
