import { isObject } from '../../../src/model/json.js';
import { printable } from './operations/words.js';

/** Markup that is not escaped again. */
export class Html {
  constructor(readonly text: string) {}

  /** Its length in UTF-8. */
  get bytes(): number {
    return Buffer.byteLength(this.text);
  }
}

/** @returns the first views that are at most this large together, in bytes. */
export function upToSize(views: readonly Html[], most: number): Html[] {
  let length = 0;
  return views.filter(({ bytes }) => (length += bytes) <= most);
}

/** A value in a template: text is escaped, markup is not; `undefined` and `false` are left out. */
export type Content = Html | string | number | undefined | false | readonly Content[];

/** Makes markup from a template: its values are escaped unless they are markup. */
export function html(strings: TemplateStringsArray, ...values: readonly Content[]): Html {
  let text = '';
  for (const [i, piece] of strings.entries()) text += piece + markupOf(values[i]);
  return new Html(text);
}

function markupOf(value: Content): string {
  if (value === undefined || value === false) return '';
  if (value instanceof Html) return value.text;
  if (Array.isArray(value)) return (value as readonly Content[]).map(markupOf).join('');
  // A value that another program has stored may have any type.
  return escaped(shown(isObject(value) ? JSON.stringify(value) : String(value)));
}

/** The value of a form's field. Keeps control characters, so that the form sends back what is stored. */
export function fieldValue(text: string): Html {
  return new Html(escaped(text));
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

const escaped = (text: string) => text.replace(/[&<>"']/g, (character) => ENTITIES[character] ?? '');

/** Writes out control characters and those that change the direction of text, except line breaks and tabs. */
export const shown = (text: string): string =>
  text
    .replaceAll('\r\n', '\n')
    .split(/([\n\t])/)
    .map((piece, i) => (i % 2 === 1 ? piece : printable(piece)))
    .join('');
