import type { Event, Session } from '@google/adk';
import { inspect } from 'node:util';
import { InvalidArgumentError } from '../model/errors.js';
import { isObject, isRecord } from '../model/json.js';
import { partsOf } from '../model/turn.js';

/** What to expect of an event; its other properties may have any value. */
export interface ExpectedEvent extends Partial<Pick<Event, Extract<keyof Event, string>>> {
  /** Its joined texts, without the model's thoughts. */
  text?: string;
  /** The functions that it calls. */
  calls?: { name: string; args: unknown }[];
  /** Its responses of functions. */
  responses?: { name: string; response: unknown }[];
}

declare global {
  // @types/jest declares it with these parameters, and Vitest takes it over.
  // eslint-disable-next-line @typescript-eslint/no-namespace
  namespace jest {
    // eslint-disable-next-line @typescript-eslint/no-empty-object-type, @typescript-eslint/no-unused-vars
    interface Matchers<R, T = {}> {
      /** The session has this state, and no other key. */
      toHaveState(expected: Record<string, unknown>): R;
      /** The session has exactly these events, in this order, each with at least these properties. */
      toHaveEvents(expected: readonly ExpectedEvent[]): R;
    }
  }
}

/** The part of jest's and Vitest's `this` that is used. */
export interface MatcherContext {
  equals(actual: unknown, expected: unknown): boolean;
  utils: { diff(expected: unknown, actual: unknown): string | null | undefined };
}

/** What jest and Vitest expect from a matcher. */
export interface MatcherResult {
  pass: boolean;
  message: () => string;
}

/**
 * Matchers for sessions, for `expect.extend` of jest and Vitest: `toHaveState` and `toHaveEvents`. Expected values may contain
 * `expect.any(…)` and the like.
 *
 * ```ts
 * expect.extend(sessionMatchers);
 * expect(session).toHaveState({ answer: 'Yes' });
 * expect(session).toHaveEvents([{ author: 'user' }, { author: 'assistant', text: 'Yes' }]);
 * ```
 *
 * They throw InvalidArgumentError if the value is not a session, also after `.not`.
 */
export const sessionMatchers = {
  toHaveState(this: MatcherContext, session: unknown, expected: Record<string, unknown>): MatcherResult {
    return resultOf(this, 'state', sessionOf(session, 'toHaveState').state, expected);
  },

  toHaveEvents(this: MatcherContext, session: unknown, expected: readonly ExpectedEvent[]): MatcherResult {
    const { events } = sessionOf(session, 'toHaveEvents');
    // Compares only the expected properties, so that the difference shows nothing else.
    const actual = events.map((event, i) => {
      const all: Record<string, unknown> = { ...event, ...contentsOf(event) };
      const names = Object.keys(expected[i] ?? { author: true, text: true });
      return Object.fromEntries(names.map((name) => [name, all[name]]));
    });
    return resultOf(this, 'events', actual, expected);
  },
};

function resultOf(context: MatcherContext, what: string, actual: unknown, expected: unknown): MatcherResult {
  const pass = context.equals(actual, expected);
  return {
    pass,
    message: () =>
      pass
        ? `The session should not have the ${what} that it has.`
        : `The session should have other ${what}:\n\n${context.utils.diff(expected, actual) ?? ''}`,
  };
}

function sessionOf(value: unknown, matcher: string): Pick<Session, 'state' | 'events'> {
  if (isSession(value)) return value;
  throw new InvalidArgumentError(
    `${matcher} needs a session, such as getSession returns for one that exists, and was given ${inspect(value, { depth: 0 })}.`,
  );
}

const isSession = (value: unknown): value is Pick<Session, 'state' | 'events'> =>
  isObject(value) && 'state' in value && isObject(value.state) && 'events' in value && Array.isArray(value.events);

function contentsOf(event: Event): Record<'text' | 'calls' | 'responses', unknown> {
  const parts = partsOf(event);
  return {
    text: parts.map(({ text, thought }) => (!thought && typeof text === 'string' ? text : '')).join(''),
    calls: parts.flatMap(({ functionCall: call }) =>
      isRecord(call) ? [{ name: call['name'] ?? '', args: call['args'] ?? {} }] : [],
    ),
    responses: parts.flatMap(({ functionResponse: response }) =>
      isRecord(response) ? [{ name: response['name'] ?? '', response: response['response'] }] : [],
    ),
  };
}
