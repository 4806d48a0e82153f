/** The largest number of an event: the columns have 32 bits. */
export const MAX_SEQ = 2 ** 31 - 1;

/** A range of event numbers; both ends are included. */
export interface SeqRange {
  from: number;
  to: number;
}

/** Joins consecutive numbers into ranges. */
export function rangesOf(seqs: Iterable<number>): SeqRange[] {
  const ranges: SeqRange[] = [];
  for (const seq of seqs) {
    const last = ranges.at(-1);
    if (last && last.to + 1 === seq) last.to = seq;
    else ranges.push({ from: seq, to: seq });
  }
  return ranges;
}

/** Cuts off what comes before a number. */
export function notBefore(ranges: readonly SeqRange[], first: number): SeqRange[] {
  return ranges.filter(({ to }) => to >= first).map(({ from, to }) => ({ from: Math.max(from, first), to }));
}

/**
 * Finds missing numbers. They are ranges, since a damaged `last_seq` may be in the billions.
 *
 * @param seqs in ascending order.
 */
export function gapsIn(seqs: Iterable<number>, after: number, upTo: number): SeqRange[] {
  const gaps: SeqRange[] = [];
  let next = after + 1;
  for (const seq of seqs) {
    if (seq > next) gaps.push({ from: next, to: seq - 1 });
    next = seq + 1;
  }
  if (next <= upTo) gaps.push({ from: next, to: upTo });
  return gaps;
}
