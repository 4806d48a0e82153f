import type { Block, Turn } from './waterfall.js';

/** What took a part of the time of turns: all models, one tool, waiting for a person, or nothing that was recorded. */
export interface Share {
  kind: Block['kind'] | 'between';
  /** Of the tool; otherwise empty. */
  name: string;
  ms: number;
  /** How many requests, calls or waits; none for the time between them. */
  count: number;
}

interface Span {
  key: string;
  start: number;
  end: number;
}

/** @returns each piece of time between two points, with the keys of the spans that it belongs to. */
function* piecesOf(spans: readonly Span[], start: number, end: number): Generator<[ms: number, keys: string[]]> {
  const active = new Map<string, number>();
  const points = spans
    .filter((span) => span.end > span.start)
    .flatMap(({ key, start, end }): [at: number, key: string, by: number][] => [
      [start, key, 1],
      [end, key, -1],
    ])
    .sort(([one], [other]) => one - other);
  let last = start;
  for (const [at, key, by] of points) {
    const to = Math.min(Math.max(at, last), end);
    if (to > last) yield [to - last, [...active.keys()]];
    last = to;
    const count = (active.get(key) ?? 0) + by;
    if (count > 0) active.set(key, count);
    else active.delete(key);
  }
  if (end > last) yield [end - last, []];
}

/** How long a turn has lasted: until its last event, or until now if something runs or waits. */
export const lengthOfTurn = ({ start, end }: Turn): number => end - start;

/**
 * Divides the time of turns, so that the parts are the whole: what ran at one moment shares it equally, a wait has what is left, and
 * then comes the time between steps.
 *
 * @returns the largest first.
 */
export function sharesOf(turns: readonly Turn[]): Share[] {
  const shares = new Map<string, Share>();
  const shareOf = ({ kind, name }: Pick<Share, 'kind' | 'name'>) => {
    const named = kind === 'tool' ? name : '';
    const key = `${kind} ${named}`;
    const share = shares.get(key) ?? { kind, name: named, ms: 0, count: 0 };
    shares.set(key, share);
    return { key, share };
  };
  const between = shareOf({ kind: 'between', name: '' }).share;
  const wait = shareOf({ kind: 'wait', name: '' });
  for (const turn of turns) {
    const blocks = turn.lanes.flatMap((lane) => lane.blocks);
    const spans = blocks.map((block): Span => {
      const { key, share } = shareOf(block);
      if (!block.isLost) share.count++;
      return { key, start: block.start, end: block.end };
    });
    for (const [ms, keys] of piecesOf(spans, turn.start, turn.end)) {
      const running = keys.filter((key) => key !== wait.key);
      const of = running.length > 0 ? running : keys;
      if (of.length === 0) between.ms += ms;
      for (const key of of) (shares.get(key) ?? between).ms += ms / of.length;
    }
  }
  return [...shares.values()].filter(({ ms }) => ms > 0).sort((one, other) => other.ms - one.ms);
}

/** @returns whole percents whose sum is 100. Rounding down loses some: the largest fractions get one each. */
export function percentsOf(values: readonly number[]): number[] {
  const sum = values.reduce((total, value) => total + value, 0);
  const exact = values.map((value) => (sum > 0 ? (100 * value) / sum : 0));
  const percents = exact.map(Math.floor);
  const left = Math.round(exact.reduce((total, each) => total + each, 0)) - percents.reduce((a, b) => a + b, 0);
  const byRest = exact.map((value, i) => [value % 1, i] as const).sort(([one], [other]) => other - one);
  for (const [, i] of byRest.slice(0, left)) percents[i] = (percents[i] ?? 0) + 1;
  return percents;
}

/** @returns how long several branches of a turn worked at the same time. */
export function parallelMs({ lanes, start, end }: Turn): number {
  const spans = lanes.flatMap(({ name, blocks }) =>
    blocks
      .filter(({ kind }) => kind !== 'wait')
      .map((block): Span => ({ key: name, start: block.start, end: block.end })),
  );
  return [...piecesOf(spans, start, end)].reduce((sum, [ms, keys]) => (keys.length > 1 ? sum + ms : sum), 0);
}
