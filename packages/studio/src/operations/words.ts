/**
 * Characters that a terminal treats as commands, or that change the direction of text. A user may have sent them to an agent.
 */
const COMMANDS = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** @returns a text in which such characters are written out, as `\u001b`, which JSON reads as the same character. */
export function printable(text: string): string {
  return text.replace(COMMANDS, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** @returns the lines of a text, each printable. */
export const printableLines = (text: string): string[] =>
  text.split(/\r?\n/).map((line) => printable(line.replaceAll('\t', '  ')));

/** The beginning of a text, of this many characters, with a mark if there is more. */
export const shortened = (text: string, most: number): string =>
  text.length > most ? `${text.slice(0, most)}…` : text;

/** A text as it is, any other value as JSON: `String` throws for an object whose `toString` is a value. */
export const textOrJson = (value: unknown): string =>
  typeof value === 'string' ? value : (JSON.stringify(value) ?? 'undefined');

/** JSON without characters that a terminal treats as commands. */
export const json = (value: unknown): string => printable(JSON.stringify(value) ?? 'undefined');

/** Quotes an argument for a shell. */
export const quoted = (text: string): string =>
  /^[\w.:@/-]+$/.test(text) ? text : `'${printable(text).replaceAll("'", "'\\''")}'`;

/**
 * @param owner an app, or an app and a user, or these and a session.
 * @returns the command that shows what is damaged, or does what other options say.
 */
export function repairCommand(owner: readonly string[], options = '--dry-run'): string {
  const names = owner.map(quoted).join(' ');
  // Otherwise the name would be an option.
  return owner.some((name) => name.startsWith('-')) ? `repair ${options} -- ${names}` : `repair ${names} ${options}`;
}

/** @param names an app, a user, a session and the id of a call. @returns the command that answers it. */
export function answerCommand(names: readonly string[], isConfirmation: boolean): string {
  // Otherwise a name would be an option.
  const given = [...(names.some((name) => name.startsWith('-')) ? ['--'] : []), ...names.map(quoted)].join(' ');
  return isConfirmation ? `answer --approve ${given}` : `answer ${given} '{"answer":"…"}'`;
}

const NUMBERS = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

export const number = (value: number): string => NUMBERS.format(value);

/**
 * A sum in the currency of the host's prices.
 *
 * @param digits after the point; the same for all sums of a table, which are compared at a glance.
 */
export const money = (amount: number, digits = digitsOf(amount)): string =>
  amount.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });

/** @returns how many digits a sum has after the point. */
export const digitsOf = (amount: number): number => (amount > 0 && amount < 1 ? 4 : 2);

/** @param what in the singular; an `s` makes the plural. */
export const counted = (count: number, what: string, plural = `${what}s`): string =>
  `${number(count)} ${count === 1 ? what : plural}`;

/** A time that has passed, such as `40 s`. */
export function lasted(ms: number): string {
  const [size, unit] = STEPS.find(([each]) => ms >= each) ?? [1, 'ms'];
  const count = ms / size;
  // Sums of minutes and shares of them are compared.
  const isExact = count < 10 ? unit !== 'ms' : size > 1_000 && count < 100;
  return `${isExact ? number(count) : Math.floor(count)} ${unit}`;
}

const STEPS: readonly [ms: number, unit: string, name: string][] = [
  [86_400_000, 'd', 'day'],
  [3_600_000, 'h', 'hour'],
  [60_000, 'min', 'minute'],
  [1_000, 's', 'second'],
];

/** How long ago something happened, such as `40 seconds ago`. */
export function ago(ms: number): string {
  const step = STEPS.find(([each]) => ms >= each);
  return step ? `${counted(Math.floor(ms / step[0]), step[2])} ago` : 'just now';
}

const UNITS = ['bytes', 'kB', 'MB', 'GB', 'TB'];

export function bytes(count: number): string {
  if (count === 1) return '1 byte';
  const unit = Math.min(Math.floor(Math.log10(Math.max(count, 1)) / 3), UNITS.length - 1);
  return `${number(count / 1_000 ** unit)} ${UNITS[unit] ?? ''}`;
}

/** @returns a time as `2026-11-22 10:00:00`, in UTC; `–` if there is none. */
export function shownTime(ms: number | undefined): string {
  if (ms === undefined) return '–';
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? String(ms) : date.toISOString().slice(0, 19).replace('T', ' ');
}

/** What to do about texts whose codec a command lacks. */
export const NAME_CODEC =
  'Name the codec of your services with --codec, or once in package.json: "adk-mikro-orm": { "codec": "./codec.js" }';
