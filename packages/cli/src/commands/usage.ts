import { EventLog } from '../../../../src/index.js';
import { DAY_MS, dayOf } from '../../../studio/src/operations/days.js';
import { sumUp, tokenSum, type Sum } from '../../../studio/src/operations/prices.js';
import { usageOf, type UsageOptions } from '../../../studio/src/index.js';
import { number } from '../../../studio/src/operations/words.js';
import { pricesOf } from '../files.js';
import type { Work } from '../run.js';
import { noteEmpty } from './owner.js';

type UsageFlags = Pick<UsageOptions, 'by'> & Partial<UsageOptions> & { prices?: string };

export const usage: Work<[UsageFlags]> = async ({ em, codec, terminal }, { prices: file, ...options }) => {
  const prices = file === undefined ? undefined : await pricesOf(file);
  const { by, to = dayOf(Date.now()) } = options;
  // An invalid day is refused later, with its name.
  const last = Date.parse(to);
  const { from = Number.isNaN(last) ? to : dayOf(last - 29 * DAY_MS) } = options;
  const { rows, unreadable } = await usageOf(new EventLog(em, codec), { ...options, from, to });
  const priced = rows.map((row) => ({ ...row, cost: sumUp([row], prices).cost }));
  // Days stay in their order: they are read as a series.
  if (by !== 'day') priced.sort((one, other) => tokenSum(other) - tokenSum(one));
  const sum = sumUp(rows, prices);
  const cells = (row: Omit<Sum, 'unpriced'>) => [
    ...[row.events, row.inputTokens, row.cachedTokens, row.outputTokens, row.thoughtsTokens, row.toolCalls],
    { amount: seconds(row.modelMs) },
    ...(row.cost === undefined ? [] : [{ amount: row.cost.toFixed(2) }]),
  ];
  const names = by === 'app' ? ['app'] : ['app', by];
  const head = [...names, 'events', 'tokens in', 'cached', 'tokens out', 'thoughts', 'calls of tools', 'model time'];
  await terminal.result({ rows: priced, sum, unreadable }, () =>
    terminal.table([
      [...head, ...(prices ? ['cost'] : [])],
      ...priced.map((row) => [...[row.appName, row.group || '–'].slice(0, names.length), ...cells(row)]),
      ...(rows.length > 1 ? [[...['sum', ''].slice(0, names.length), ...cells(sum)]] : []),
    ]),
  );
  if (rows.length === 0) await noteEmpty({ em, terminal }, options, `No event is of ${from} to ${to}.`);
  if (unreadable > 0) terminal.note(`${number(unreadable)} events could not be read, and are not counted.`);
  if (sum.unpriced.length > 0)
    terminal.note(
      `Without a price, and not in the cost: ${sum.unpriced.map((model) => model || '(no name)').join(', ')}`,
    );
};

/** Nobody knows it of events that came without the times of their appends. */
const seconds = (ms: number) => (ms > 0 ? `${number(ms / 1_000)} s` : '–');
