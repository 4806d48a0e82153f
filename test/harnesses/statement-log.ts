import { DefaultLogger, type LogContext, type LoggerOptions } from '@mikro-orm/core';

export interface RecordedStatement {
  text: string;
  values: readonly unknown[];
}

/** Collects the statements of an ORM while somebody listens. */
export class StatementLog {
  #listeners: ((statement: RecordedStatement) => void)[] = [];

  /** For `MikroORM.init`. */
  readonly loggerFactory = (options: LoggerOptions) =>
    new ListeningLogger(options, (statement) => this.#tell(statement));

  listen(listener: (statement: RecordedStatement) => void): () => void {
    this.#listeners.push(listener);
    return () => {
      this.#listeners = this.#listeners.filter((other) => other !== listener);
    };
  }

  async during(work: () => Promise<unknown>): Promise<RecordedStatement[]> {
    const statements: RecordedStatement[] = [];
    const stop = this.listen((statement) => statements.push(statement));
    try {
      await work();
    } finally {
      stop();
    }
    return statements;
  }

  #tell(statement: RecordedStatement): void {
    for (const listener of this.#listeners) listener(statement);
  }
}

class ListeningLogger extends DefaultLogger {
  readonly #tell: (statement: RecordedStatement) => void;

  constructor(options: LoggerOptions, tell: (statement: RecordedStatement) => void) {
    super(options);
    this.#tell = tell;
  }

  override logQuery({ query, params }: LogContext): void {
    this.#tell({ text: query ?? '', values: params ?? [] });
  }
}
