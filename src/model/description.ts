import { InvalidArgumentError } from './errors.js';
import { decode, isRecord } from './json.js';
import { TITLE_LENGTH, isLonger, isStorable } from './keys.js';

const LABEL_NAME = /^[\w./-]{1,64}$/;
const LABEL_LENGTH = 255;

/** @throws InvalidArgumentError if the title cannot be stored. */
export function checkTitle(title: string): void {
  if (isLonger(title, TITLE_LENGTH) || !isStorable(title)) {
    throw new InvalidArgumentError(
      `title must be a string of up to ${TITLE_LENGTH} characters, without NUL and halves of surrogate pairs.`,
    );
  }
}

/** @throws InvalidArgumentError if labels cannot be stored or found. */
export function checkLabels(
  labels: Readonly<Record<string, unknown>>,
): asserts labels is Readonly<Record<string, string>> {
  for (const [name, value] of Object.entries(labels)) {
    if (!LABEL_NAME.test(name)) {
      throw new InvalidArgumentError(
        "The name of a label must have 1 to 64 letters of a to z and A to Z, digits, '_', '-', '.' and '/'.",
      );
    }
    if (typeof value !== 'string' || isLonger(value, LABEL_LENGTH) || !isStorable(value)) {
      throw new InvalidArgumentError(
        `The value of a label must be a string of up to ${LABEL_LENGTH} characters, without NUL and halves of surrogate pairs.`,
      );
    }
  }
}

/** @returns labels of a session's row. What somebody else has stored there and is no label is left out. */
export function labelsIn(json: string | null): Record<string, string> {
  const labels = json === null ? undefined : decode(json)?.value;
  const strings = Object.entries(isRecord(labels) ? labels : {}).filter(
    (entry): entry is [string, string] => typeof entry[1] === 'string',
  );
  return Object.fromEntries(strings);
}
