import { InvalidArgumentError } from 'commander';
import type { LogCursor } from '../../../src/index.js';

const UNITS: Readonly<Record<string, number>> = {
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 24 * 3_600_000,
  w: 7 * 24 * 3_600_000,
};

/** @param text a number with one of the units `s`, `m`, `h`, `d` and `w`. @returns ms. */
export function duration(text: string): number {
  const [, number = '', unit = ''] = /^(\d+(?:\.\d+)?)([smhdw])$/.exec(text) ?? [];
  const factor = UNITS[unit];
  if (factor === undefined) throw new InvalidArgumentError('It takes a number and s, m, h, d or w, such as 90d.');
  return Number(number) * factor;
}

/** @param text an ISO date or time. @returns ms since 1970. */
export function time(text: string): number {
  const ms = /^\d{4}-\d\d/.test(text) ? Date.parse(text) : NaN;
  if (Number.isNaN(ms)) throw new InvalidArgumentError('It takes a date or a time, such as 2026-11-22T10:00:00Z.');
  return ms;
}

/** A time of the day: hours, minutes and seconds. */
type TimeOfDay = readonly [hours: number, minutes: number, seconds: number];

/** @param text an ISO date or time, which gives ms since 1970, or a time of the day. */
export function timeOrTimeOfDay(text: string): number | TimeOfDay {
  const [, hours, minutes, seconds = '0'] = /^(\d{1,2}):(\d\d)(?::(\d\d))?$/.exec(text) ?? [];
  const [h, m, s] = [Number(hours), Number(minutes), Number(seconds)];
  if (h < 24 && m < 60 && s < 60) return [h, m, s];
  const ms = /^\d{4}-\d\d/.test(text) ? Date.parse(text) : NaN;
  if (Number.isNaN(ms)) throw new InvalidArgumentError('It takes a time such as 14:05 or 2026-11-22T14:05:00Z.');
  return ms;
}

/**
 * @param isUtc whether a time of the day is in UTC, and not in the zone of this machine.
 * @returns in ms since 1970 a time, or the first one with this time of the day after another time.
 */
export function timeAfter(given: number | TimeOfDay, earlier: number, isUtc: boolean): number {
  if (typeof given === 'number') return given;
  const date = new Date(earlier);
  for (;;) {
    const ms = isUtc ? date.setUTCHours(...given, 0) : date.setHours(...given, 0);
    if (ms > earlier) return ms;
    // A day of this machine's zone has up to 25 hours.
    if (isUtc) date.setUTCDate(date.getUTCDate() + 1);
    else date.setDate(date.getDate() + 1);
  }
}

export function wholeNumber(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError('It takes a whole number.');
  return Number(text);
}

/** @returns a port of TCP; 0 leaves the choice to the system. */
export function port(text: string): number {
  const number = wholeNumber(text);
  if (number > 65_535) throw new InvalidArgumentError('It takes a port from 0 to 65535.');
  return number;
}

/** A position of the event log, or the JSON of an entry's `cursor`, whose content is checked later. */
export function logCursor(text: string): LogCursor | number {
  if (!text.startsWith('{')) return wholeNumber(text);
  try {
    return JSON.parse(text) as LogCursor;
  } catch {
    throw new InvalidArgumentError('It takes a position, or the cursor of an entry as JSON.');
  }
}

/** Collects `name=value` of an option that may be given several times. */
export function label(text: string, before: Readonly<Record<string, string>> = {}): Record<string, string> {
  const at = text.indexOf('=');
  if (at < 1) throw new InvalidArgumentError('It takes name=value.');
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) };
}
