/** Numbers of events, the first and the last of which belong to it. */
export interface SeqRange {
  from: number;
  to: number;
}

/** Numbers without a gap between them become one range. */
export function rangesOf(seqs: Iterable<number>): SeqRange[] {
  const ranges: SeqRange[] = [];
  for (const seq of seqs) {
    const last = ranges.at(-1);
    if (last && last.to + 1 === seq) last.to = seq;
    else ranges.push({ from: seq, to: seq });
  }
  return ranges;
}

/**
 * The numbers that are not there. As ranges, since a session's last number may be damaged, too, and be in the billions.
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
