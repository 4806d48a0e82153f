/**
 * Orders a session's events and changes as they were made. An event comes after the last change that was made while the session's
 * newest event had a lower number.
 *
 * @param events by number.
 * @param changes in the order in which they were made; `seq` is the number of the session's newest event at that time.
 */
export function* inLogOrder<Event extends { seq: number }, Change extends { seq: number }>(
  events: readonly Event[],
  changes: readonly Change[],
): Generator<{ event: Event; change?: undefined } | { change: Change; event?: undefined }> {
  const after = (event: Event) => changes.findLastIndex((change) => change.seq < event.seq);
  const eventsAfter = new Map<number, Event[]>();
  for (const event of events) {
    const index = after(event);
    const others = eventsAfter.get(index);
    if (others) others.push(event);
    else eventsAfter.set(index, [event]);
  }
  for (const event of eventsAfter.get(-1) ?? []) yield { event };
  for (const [i, change] of changes.entries()) {
    yield { change };
    for (const event of eventsAfter.get(i) ?? []) yield { event };
  }
}
