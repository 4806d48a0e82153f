import { NO_TOKENS, addTokens, type TokenCounts } from './tokens.js';
import { recordOf } from '../../../../src/model/json.js';
import { aRecord, object, rule } from '../../../../src/model/arguments.js';
import type { Price, Prices } from '../options.js';
import type { Usage } from './usage.js';

const aPrice = rule('a number from 0', (value) => Number.isFinite(value) && Number(value) >= 0);
const onePrice = object<Price>({ input: aPrice, cached: aPrice, output: aPrice, thoughts: aPrice }, 'input', 'output');

/** @returns a copy. @throws InvalidArgumentError. */
export function somePrices(value: unknown, name: string): Prices {
  aRecord(value, name);
  return Object.fromEntries(
    Object.entries(recordOf(value)).map(([model, price]) => [model, onePrice(price, `${name}: ${model}`)]),
  );
}

/** Rows of usage in one, and what they cost. */
export interface Sum extends TokenCounts {
  events: number;
  toolCalls: number;
  modelMs: number;
  /** Undefined without prices. */
  cost: number | undefined;
  /** The models that have used tokens, and have no price. */
  unpriced: string[];
}

type Row = Usage['rows'][number];

export function sumUp(rows: readonly Row[], prices?: Prices): Sum {
  const sum: Sum = { events: 0, toolCalls: 0, modelMs: 0, ...NO_TOKENS, cost: prices && 0, unpriced: [] };
  const unpriced = new Set<string>();
  for (const row of rows) {
    sum.events += row.events;
    sum.toolCalls += row.toolCalls;
    sum.modelMs += row.modelMs;
    addTokens(sum, row);
    for (const [model, tokens] of prices ? Object.entries(row.models) : []) {
      const price = priceOf(model, prices ?? {});
      if (price) sum.cost = (sum.cost ?? 0) + costOf(tokens, price);
      else if (tokenSum(tokens) > 0) unpriced.add(model);
    }
  }
  return { ...sum, unpriced: [...unpriced].sort() };
}

/** @returns all tokens, cached ones included. */
export const tokenSum = ({ inputTokens, outputTokens, thoughtsTokens }: TokenCounts): number =>
  inputTokens + outputTokens + thoughtsTokens;

function costOf({ inputTokens, cachedTokens, outputTokens, thoughtsTokens }: TokenCounts, price: Price): number {
  const { input, cached = input, output, thoughts = output } = price;
  const fresh = Math.max(0, inputTokens - cachedTokens);
  return (fresh * input + cachedTokens * cached + outputTokens * output + thoughtsTokens * thoughts) / 1e6;
}

/** What may follow the name in the name of a version: a number, or a date. Not `-lite`, which is another model. */
const VERSION = /^[-@:]\d[\d.-]*$/;

function priceOf(model: string, prices: Prices): Price | undefined {
  // Vertex AI names models by their path.
  const name = model.slice(model.lastIndexOf('/') + 1);
  if (Object.hasOwn(prices, name)) return prices[name];
  const found = Object.keys(prices).filter((each) => name.startsWith(each) && VERSION.test(name.slice(each.length)));
  return prices[found.sort((one, other) => other.length - one.length)[0] ?? ''];
}
