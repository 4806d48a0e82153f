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
 * Refuses a server that only speaks the protocol of a supported one, and a connection whose settings would change what is read or
 * written. Runs before our first statement on a connection (contract O7).
 *
 * @param read runs a statement on the connection.
 * @param condition another SQL condition to ask for in the same statement.
 * @returns whether the condition is true.
 * @throws SchemaError that names the server, or the first setting that is wrong.
 */
export async function refuseConnection(
  { settings, wrongServer }: { settings: readonly Setting[]; wrongServer?: (version: string) => string | undefined },
  read: (text: string) => Promise<readonly SettingsRow[]>,
  condition?: string,
): Promise<boolean> {
  const version = wrongServer ? 'version() as version, ' : '';
  const cases = settings.map(({ isWrong }, i) => `when ${isWrong} then ${i}`);
  const asked = condition === undefined ? '' : `case when ${condition} then 1 else 0 end as is_true, `;
  // With a `limit` MySQL ignores `sql_select_limit`, which may be 0.
  const text = `select ${version}${asked}case ${cases.join(' ')} end as wrong limit 1`;
  const [row] = await read(text).catch(async (error: unknown) => {
    // Another server may lack these settings, but knows its version.
    const found = wrongServer ? await read('select version() as version').catch(() => []) : [];
    refuseServer(found);
    throw error;
  });
  if (row) refuseServer([row]);
  const wrong = settings[Number(row?.wrong ?? -1)];
  if (wrong) throw refused(wrong);
  return Number(row?.is_true ?? 0) === 1;

  function refuseServer([found]: readonly SettingsRow[]): void {
    // After `set names binary` the version is a Buffer; its setting is then reported.
    const reason = found && wrongServer?.(String(found.version));
    if (reason !== undefined) throw new SchemaError(reason);
  }
}

interface SettingsRow {
  version?: unknown;
  wrong?: unknown;
  is_true?: unknown;
}

function refused({ name, because, advice }: Setting): SchemaError {
  return new SchemaError(
    `This connection to the database has a setting that is refused, and nothing was written: ${name}, with which ${because}. ${advice}`,
  );
}
