import { SETTINGS } from '../../model/setting-words.js';

/**
 * A setting of the server or its connections on which the guarantees or the speed depend; docs/durability.md and
 * docs/high-availability.md say why.
 */
export interface ServerSetting {
  name: string;
  /** Selects it as `value`. */
  select: string;
  /** Whether nothing works with a wrong value; otherwise a wrong value costs safety or speed. */
  isRequired: boolean;
  /**
   * @param poolMax the most connections of the host's pool.
   * @returns what the value costs and what to do; undefined if it is right.
   */
  advice(value: string, poolMax: number): string | undefined;
}

/** @param select an expression that needs no table. */
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

/** @returns an `advice` for every value except these. */
export const unless =
  (...expected: readonly string[]) =>
  (advice: string) =>
  (value: string): string | undefined =>
    expected.includes(value.toLowerCase()) ? undefined : advice;

/** For the server's limit of connections. */
export const roomForPool = (value: string, poolMax: number): string | undefined =>
  Number(value) <= poolMax
    ? `The pool may open ${poolMax} connections, and the server takes ${value} of all processes. Lower ${SETTINGS.pool}.`
    : undefined;

const SHORT_MS = 10_000;

/** For the server's time limit for statements, in ms; 0 for none. */
export const longEnough = (value: string): string | undefined =>
  Number(value) > 0 && Number(value) < SHORT_MS
    ? `Statements end after ${value} ms: those of maintenance and of large sessions may fail. Allow ${SHORT_MS} ms or more.`
    : undefined;
