import { type UsageOptions, SessionMaintenance } from '../../../../src/index.js';
import { DAY_MS, dayOf } from '../../../../src/model/days.js';
import { number } from '../../../studio/src/operations/words.js';
import type { Work } from '../run.js';
import { noteEmpty } from './owner.js';

export const usage: Work<[Pick<UsageOptions, 'by'> & Partial<UsageOptions>]> = async (
  { em, codec, terminal },
  options,
) => {
  const { by, to = dayOf(Date.now()) } = options;
  // An invalid day is refused later, with its name.
  const last = Date.parse(to);
  const { from = Number.isNaN(last) ? to : dayOf(last - 29 * DAY_MS) } = options;
  const { rows, unreadable } = await new SessionMaintenance(em, codec).usage({ ...options, from, to });
  const lines = rows.map((row) => [
    row.appName,
    row.group,
    ...[row.events, row.inputTokens, row.cachedTokens, row.outputTokens, row.thoughtsTokens, row.toolCalls].map(number),
  ]);
  const head = ['app', by, 'events', 'tokens in', 'cached', 'tokens out', 'thoughts', 'calls of tools'];
  await terminal.result({ rows, unreadable }, () => terminal.table([head, ...lines]));
  if (rows.length === 0) await noteEmpty({ em, terminal }, options, `No event is of ${from} to ${to}.`);
  if (unreadable > 0) terminal.note(`${number(unreadable)} events could not be read, and are not counted.`);
};
