import { printable } from '../operations/words.js';

/** Markup that goes into a page as it is. */
export class Html {
  constructor(readonly text: string) {}

  /** How long it is as UTF-8. */
  get bytes(): number {
    return Buffer.byteLength(this.text);
  }
}

/** What a template takes: text is escaped, markup is not; `undefined` and `false` are nothing. */
export type Content = Html | string | number | undefined | false | readonly Content[];

/** Markup with values in it, each escaped unless it is markup itself. */
export function html(strings: TemplateStringsArray, ...values: readonly Content[]): Html {
  return new Html(strings.map((text, i) => text + markupOf(values[i])).join(''));
}

function markupOf(value: Content): string {
  if (value === undefined || value === false) return '';
  if (value instanceof Html) return value.text;
  return typeof value === 'object' ? value.map(markupOf).join('') : escaped(shown(String(value)));
}

/** The value of a form's field, which must come back as it is: control characters stay. */
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

/** Text in which control characters, and those that reorder what is shown, are written out; lines and tabs stay. */
export const shown = (text: string): string =>
  text
    .replaceAll('\r\n', '\n')
    .split(/([\n\t])/)
    .map((piece, i) => (i % 2 === 1 ? piece : printable(piece)))
    .join('');
