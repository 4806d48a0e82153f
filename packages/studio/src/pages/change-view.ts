import { shortened } from '../operations/words.js';
import { html, type Content, type Html } from '../html.js';
import type { StateChange } from '../state-changes.js';
import { chip, codeOf } from './layout.js';

/** The value before, and after, a change of the state. @param most how many characters of each are shown. */
export function changeText({ old, isOldKnown, json, isSuperseded }: StateChange, most: number): Content {
  const value = (text: string | undefined, none: string): Html =>
    text === undefined ? html`<span class="dim">${none}</span>` : codeOf(shortened(text, most));
  const before = isOldKnown
    ? value(old, 'not set')
    : html`<span class="dim" title="The value before is not known">?</span>`;
  return html`${before} <span class="dim">→</span> ${value(json, 'removed')}
    ${isSuperseded && chip('did not count: a later write was stored first', 'warn')}`;
}
