import type { Event } from '@google/adk';

/**
 * Makes the message of a run that continues with stored events of the user the last of these, as if the Runner had just appended
 * them in one event: ADK reads confirmations from the user's last event only. From then on the event has the run's invocation, which
 * shows that the run has begun. The other events keep their places, without content.
 *
 * @returns the events to append again.
 */
export function resumedBy(message: Event, resumed: readonly Event[]): Event[] {
  const { invocationId, content } = message;
  Object.assign(message, resumed.at(-1), { invocationId, content });
  return [...resumed.slice(0, -1).map(({ content: _, ...event }) => ({ ...event, invocationId })), message];
}

/** @returns what a Runner gets as its message, to continue with stored events of the user. */
export const messageOf = (resumed: readonly Event[]): NonNullable<Event['content']> => ({
  role: 'user',
  parts: resumed.flatMap(({ content }) => content?.parts ?? []),
});
