/** A median and its quartiles. */
export interface Spread {
  median: number;
  low: number;
  high: number;
  /** How many rounds it comes from. */
  rounds: number;
}

export function spreadOf(values: readonly number[]): Spread | undefined {
  if (values.length === 0) return undefined;
  const sorted = [...values].sort((a, b) => a - b);
  return {
    median: quantile(sorted, 0.5),
    low: quantile(sorted, 0.25),
    high: quantile(sorted, 0.75),
    rounds: sorted.length,
  };
}

/** The limits below which half of the values are, and 99 of 100. */
export interface Percentiles {
  p50: number;
  p99: number;
  /** The number of values. With fewer than 100, the p99 is near the largest. */
  samples: number;
}

export function percentilesOf(values: readonly number[]): Percentiles {
  const sorted = [...values].sort((a, b) => a - b);
  return { p50: quantile(sorted, 0.5), p99: quantile(sorted, 0.99), samples: sorted.length };
}

function quantile(sorted: readonly number[], part: number): number {
  const position = (sorted.length - 1) * part;
  const below = sorted[Math.floor(position)] ?? NaN;
  const above = sorted[Math.ceil(position)] ?? NaN;
  return below + (above - below) * (position - Math.floor(position));
}

/** Ratios of two series by round, since a disturbance in a round affects both. */
export function ratioOf(series: Readonly<Series>, to: Readonly<Series>): Spread | undefined {
  return spreadOf(
    series.flatMap((value, round) => {
      const other = to[round];
      return value === undefined || other === undefined ? [] : [value / other];
    }),
  );
}

/** A time for each round; undefined if there was none. */
export type Series = (number | undefined)[];
