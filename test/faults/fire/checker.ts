import type { StormHistory } from '../processes/storm-protocol.js';
import { upTo, type Stored } from '../processes/tables.js';

/**
 * Compares the answers that processes got with the tables, as Jepsen does for append-only lists.
 *
 * @param histories of all processes that wrote to the session or read it.
 * @returns the contradictions; none if all is well.
 */
export function violations(histories: readonly StormHistory[], stored: Stored): string[] {
  const { ids, seqs, lastSeq, state, folded } = stored;
  const found: string[] = [];
  const check = (fits: boolean, what: string) => {
    if (!fits) found.push(what);
  };
  const index = new Map(ids.map((id, i) => [id, i]));
  const isPrefix = (read: readonly string[]) => read.every((id, i) => ids[i] === id);

  check(index.size === ids.length, 'an event is stored twice');
  check(lastSeq === ids.length && equal(seqs, upTo(ids.length)), 'the numbers are not 1, 2, 3 …');
  check(equal(sorted(state), sorted(folded)), 'the state is not what the events make of it');

  const tried = new Set(
    histories.flatMap(({ acknowledged, failed, interrupted }) => [
      ...acknowledged,
      ...failed.map(({ id }) => id),
      ...interrupted,
    ]),
  );
  for (const id of ids) check(tried.has(id), `${id} is stored, and nobody appended it`);

  for (const { acknowledged, failed, reads, handle, seen, unhandled } of histories) {
    for (const id of acknowledged) check(index.has(id), `${id} was acknowledged and is not stored`);
    const indexes = acknowledged.flatMap((id) => index.get(id) ?? []);
    check(isAscending(indexes), 'the events of a process are stored in another order');
    for (const { id, outcome } of failed) {
      check(outcome === 'unknown' || !index.has(id), `of ${id} it was said that nothing was written, and it is stored`);
    }
    for (const read of reads) check(isPrefix(read), 'a read does not fit what was stored then');
    check(isPrefix(handle), 'a handle does not fit what was stored at its last append');
    check(isAscending(reads.map(({ length }) => length)), 'a later read has fewer events');
    check(isAscending(seen.map(({ position }) => position)), 'positions do not rise');
    if (seen.length > 0) {
      check(
        equal(seen.map(({ id }) => id).sort(), [...ids].sort()),
        'a reader of the log has not seen each event once',
      );
    }
    for (const error of unhandled) check(false, `nobody handled: ${error}`);
  }
  return found;
}

const equal = (one: unknown, other: unknown) => JSON.stringify(one) === JSON.stringify(other);

const sorted = (record: Record<string, unknown>) => Object.entries(record).sort(([a], [b]) => (a < b ? -1 : 1));

const isAscending = (numbers: readonly number[]) => numbers.every((number, i) => i === 0 || numbers[i - 1]! <= number);
