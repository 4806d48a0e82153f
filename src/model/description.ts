import { aPlainObject, rule, type Check } from './arguments.js';
import { InvalidArgumentError } from './errors.js';
import { decode, isRecord } from './json.js';
import { TITLE_LENGTH, isLonger, isStorable } from './keys.js';

const LABEL_NAME = /^[\w./-]{1,64}$/;
const LABEL_LENGTH = 255;

const textOf = (length: number) =>
  rule(
    `a string of up to ${length} characters, without NUL and halves of surrogate pairs`,
    (value) => typeof value === 'string' && !isLonger(value, length) && isStorable(value),
  );

export const aTitle = textOf(TITLE_LENGTH);

const aLabel = textOf(LABEL_LENGTH);

export const someLabels: Check = (value, name) => {
  const labels = aPlainObject(value, name);
  for (const [label, each] of Object.entries(labels)) {
    if (!LABEL_NAME.test(label))
      throw new InvalidArgumentError(
        "The name of a label must have 1 to 64 letters of a to z and A to Z, digits, '_', '-', '.' and '/'.",
      );
    aLabel(each, 'The value of a label');
  }
  return labels;
};

/** @returns labels of a session's row. What somebody else has stored there and is no label is left out. */
export function labelsIn(json: string | null): Record<string, string> {
  const labels = json === null ? undefined : decode(json)?.value;
  const strings = Object.entries(isRecord(labels) ? labels : {}).filter(
    (entry): entry is [string, string] => typeof entry[1] === 'string',
  );
  return Object.fromEntries(strings);
}
