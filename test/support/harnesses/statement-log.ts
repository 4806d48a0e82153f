import { DefaultLogger, type LogContext, type LoggerOptions } from '@mikro-orm/core';

export interface RecordedStatement {
  text: string;
  values: readonly unknown[];
}

/** Whether a statement looks at the server or the connection, which the first call on each does: no count is about it. */
export const isCheck = (text: string) => text === 'select version() as version' || text.endsWith(' as wrong limit 1');

/** Collects the statements of an ORM while somebody listens. */
export class StatementLog {
  #listeners: ((statement: RecordedStatement) => void)[] = [];

  /** For `MikroORM.init`. */
  readonly loggerFactory = (options: LoggerOptions) =>
    new ListeningLogger(options, (statement) => this.#record(statement));

  listen(listener: (statement: RecordedStatement) => void): () => void {
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
  }
}

class ListeningLogger extends DefaultLogger {
  readonly #emit: (statement: RecordedStatement) => void;

  constructor(options: LoggerOptions, emit: (statement: RecordedStatement) => void) {
    super(options);
    this.#emit = emit;
  }

  override logQuery({ query, params }: LogContext): void {
    this.#emit({ text: query ?? '', values: params ?? [] });
  }
}
