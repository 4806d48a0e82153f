/** A statement with `?` for its values. Each text is prepared once. */
export interface Statement {
  text: string;
  values: readonly unknown[];
}

export type Row = Record<string, unknown>;

export interface Outcome {
  rows: readonly Row[];
  /** The value of `last_insert_id(…)` on MySQL and MariaDB. */
  insertId: number;
}

/** Yields statements, and receives the outcome of each. A driver runs them in its own best way. */
export type Steps<T> = Generator<Statement, T, Outcome>;

/** A database driver without an ORM, its statements prepared. */
export interface BareDriver {
  /** Runs the steps on one connection between `begin` and `commit`. */
  transaction<T>(steps: Steps<T>): Promise<T>;
  /** Runs the steps without a transaction. */
  run<T>(steps: Steps<T>): Promise<T>;
  /** The clause that makes `insert … values …` overwrite `value` and `event_id`. */
  upsert(keyColumns: readonly string[]): string;
  /** The beginning and the end of an insert that skips existing rows. */
  insertMissing: { start: string; end: string };
  /** Whether `update … returning` returns rows; otherwise `last_insert_id(…)` has the number. */
  hasReturning: boolean;
  jsonText(column: string): string;
  /** A time for a column of a date type. */
  date(ms: number): unknown;
  /** Updates the planner's statistics. */
  analyze(tables: readonly string[]): Promise<void>;
  close(): Promise<void>;
}

export async function runSteps<T>(steps: Steps<T>, execute: (statement: Statement) => Promise<Outcome>): Promise<T> {
  for (let step = steps.next(); ;) {
    if (step.done) return step.value;
    step = steps.next(await execute(step.value));
  }
}
