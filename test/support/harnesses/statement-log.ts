import { DefaultLogger, type LogContext, type LoggerOptions } from '@mikro-orm/core';

export interface RecordedStatement {
  text: string;
  values: readonly unknown[];
}

/** Whether a statement checks the server or the connection, as the first call on each does. Counts leave these out. */
export const isCheck = (text: string) =>
  text.endsWith(' as wrong limit 1') || text.startsWith('select partmethod::text as partmethod from pg_dist_partition');

type Listener = (statement: RecordedStatement) => void;

const watchers = new Set<Listener>();

/** @param watcher gets the statements of all stores, except those on tests' own connections. */
export function watchStatements(watcher: Listener): void {
  watchers.add(watcher);
}

/** Collects the statements of an ORM while there is a listener. */
export class StatementLog {
  #listeners: Listener[] = [];

  /** An option for `MikroORM.init`. */
  readonly loggerFactory = (options: LoggerOptions) =>
    new ListeningLogger(options, (statement) => this.#record(statement));

  listen(listener: Listener): () => void {
    this.#listeners.push(listener);
    return () => {
      this.#listeners = this.#listeners.filter((other) => other !== listener);
    };
  }

  async during(work: () => Promise<unknown>): Promise<RecordedStatement[]> {
    const statements: RecordedStatement[] = [];
    const stop = this.listen((statement) => {
      if (!isCheck(statement.text)) statements.push(statement);
    });
    try {
      await work();
    } finally {
      stop();
    }
    return statements;
  }

  #record(statement: RecordedStatement): void {
    for (const listener of this.#listeners) listener(statement);
    for (const watcher of watchers) watcher(statement);
  }
}

class ListeningLogger extends DefaultLogger {
  readonly #emit: Listener;

  constructor(options: LoggerOptions, emit: Listener) {
    super(options);
    this.#emit = emit;
  }

  override logQuery({ query, params }: LogContext): void {
    this.#emit({ text: query ?? '', values: params ?? [] });
  }
}
