/**
 * A setting of the server or of its connections on which the guarantees or the speed depend; docs/durability.md and
 * docs/high-availability.md say why.
 */
export interface ServerSetting {
  name: string;
  /** Selects it as `value`. */
  select: string;
  /** Whether nothing works with a wrong value; otherwise it costs safety or speed. */
  isRequired: boolean;
  /**
   * @param poolMax how many connections the host's pool has at most.
   * @returns what a value costs and what to do; undefined if it is as it should be.
   */
  advice(value: string, poolMax: number): string | undefined;
}

/** @param select an expression that has no tables of its own. */
export const setting = (name: string, select: string, advice: ServerSetting['advice']): ServerSetting => ({
  name,
  select: `select ${select} as value`,
  isRequired: false,
  advice,
});

export const required = (name: string, select: string, advice: ServerSetting['advice']): ServerSetting => ({
  ...setting(name, select, advice),
  isRequired: true,
});

/** @returns an `advice` for a value that is none of these. */
export const unless =
  (...expected: readonly string[]) =>
  (advice: string) =>
  (value: string): string | undefined =>
    expected.includes(value.toLowerCase()) ? undefined : advice;

/** For the most connections that a server takes. */
export const roomForPool = (value: string, poolMax: number): string | undefined =>
  Number(value) <= poolMax
    ? `The pool may open ${poolMax} connections, and the server takes ${value} of all processes. Lower 'pool.max' in the config of MikroORM.`
    : undefined;

const SHORT_MS = 10_000;

/** For a limit of the server's on statements, in ms; 0 for none. */
export const longEnough = (value: string): string | undefined =>
  Number(value) > 0 && Number(value) < SHORT_MS
    ? `Statements end after ${value} ms: those of maintenance and of large sessions may fail. Allow ${SHORT_MS} ms or more.`
    : undefined;
