/** A statement with `?` for its values; prepared once for its text. */
export interface Statement {
  text: string;
  values: readonly unknown[];
}

export type Row = Record<string, unknown>;

export interface Outcome {
  rows: readonly Row[];
  /** What `last_insert_id(…)` left, on MySQL and MariaDB. */
  insertId: number;
}

/** Statements one after the other, each with what came of the one before; a driver runs them as suits it best. */
export type Steps<T> = Generator<Statement, T, Outcome>;

/** A database driver without an ORM, its statements prepared. */
export interface BareDriver {
  /** Runs the steps on one connection between `begin` and `commit`. */
  transaction<T>(steps: Steps<T>): Promise<T>;
  /** Runs the steps without a transaction. */
  run<T>(steps: Steps<T>): Promise<T>;
  /** What follows `insert … values …` to make it overwrite `value` and `event_id`. */
  upsert(keyColumns: readonly string[]): string;
  /** What begins an insert that skips the rows that are there, and what ends it. */
  insertMissing: { start: string; end: string };
  /** Whether `update … returning` gives rows; else `last_insert_id(…)` carries the number. */
  hasReturning: boolean;
  jsonText(column: string): string;
  /** A time for a column of a date type. */
  date(ms: number): unknown;
  /** Brings the statistics of the planner up to date. */
  analyze(tables: readonly string[]): Promise<void>;
  close(): Promise<void>;
}

export async function runSteps<T>(steps: Steps<T>, execute: (statement: Statement) => Promise<Outcome>): Promise<T> {
  for (let step = steps.next(); ;) {
    if (step.done) return step.value;
    step = steps.next(await execute(step.value));
  }
}
