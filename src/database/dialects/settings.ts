import { SchemaError } from '../../model/errors.js';

/** A setting of a connection that changes what the statements of this package read or write. */
export interface Setting {
  name: string;
  /** What would happen; part of the error's message. */
  because: string;
  /** What to run or to change; part of the error's message. */
  advice: string;
  /** An SQL condition that is true if the setting is wrong. */
  isWrong: string;
}

/**
 * Refuses a connection whose settings would change what is read or written. Runs before our first statement on a connection
 * (contract O7).
 *
 * @param read runs a statement on the connection.
 * @param condition another SQL condition to ask for in the same statement.
 * @returns whether the condition is true.
 * @throws SchemaError that names the first setting that is wrong.
 */
export async function refuseSettings(
  settings: readonly Setting[],
  read: (text: string) => Promise<readonly { wrong?: unknown; is_true?: unknown }[]>,
  condition?: string,
): Promise<boolean> {
  const cases = settings.map(({ isWrong }, i) => `when ${isWrong} then ${i}`);
  const asked = condition === undefined ? '' : `case when ${condition} then 1 else 0 end as is_true, `;
  // With a `limit` MySQL ignores `sql_select_limit`, which may be 0.
  const [row] = await read(`select ${asked}case ${cases.join(' ')} end as wrong limit 1`);
  const wrong = settings[Number(row?.wrong ?? -1)];
  if (wrong) throw refused(wrong);
  return Number(row?.is_true ?? 0) === 1;
}

function refused({ name, because, advice }: Setting): SchemaError {
  return new SchemaError(
    `This connection to the database has a setting that is refused, and nothing was written: ${name}, with which ${because}. ${advice}`,
  );
}
