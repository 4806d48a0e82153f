import fc from 'fast-check';

/** A step of a sequence. Its numbers select among the existing sessions and events, so that any sequence can run. */
export type Operation =
  | { do: 'create' | 'getOrCreate'; slot: Slot; state: Delta }
  | { do: 'open' | 'delete' | 'delete softly' | 'restore' | 'erase user'; slot: Slot }
  | { do: 'prune' }
  | { do: 'update state'; slot: Slot; state: Delta; removed: string[] }
  | { do: 'trim'; slot: Slot; keepLast: number }
  | { do: 'rewind' | 'fork'; slot: Slot; at: number }
  | { do: 'append'; handle: number; events: EventContent[]; how: 'in turn' | 'in parallel' | 'in one transaction' }
  | { do: 'replace newest'; handle: number; event: EventContent }
  | { do: 'retry'; handle: number; event: number }
  | { do: 'append partial'; handle: number; event: EventContent }
  | { do: 'write temp'; handle: number; key: string; value: unknown }
  | { do: 'read'; slot: Slot; numRecentEvents?: number; afterEvent?: { event: number; nudge: number } }
  | { do: 'list'; userId?: string; limit?: number; offset?: number; page?: number; order?: 'asc' | 'desc' };

export interface Slot {
  userId: string;
  sessionId: string;
}

export type Delta = Record<string, unknown>;

/** An event but for its id. */
export interface EventContent {
  /** Chooses the id: in most cases a new one, otherwise one that other sessions use as well. */
  id: number;
  fields: Record<string, unknown>;
  timestamp: number;
  stateDelta?: Delta;
}

/** Few, so that operations meet; apart only byte for byte; names that objects have already. */
export const SLOTS: readonly Slot[] = [
  { userId: 'u', sessionId: 's' },
  { userId: 'u', sessionId: 'S' },
  { userId: 'U', sessionId: 's' },
  { userId: 'u ', sessionId: 's ' },
  { userId: '__proto__', sessionId: 'constructor' },
  { userId: 'é😀\'"`\\%_?', sessionId: '__proto__' },
];

const ODD_KEYS = [
  '__proto__',
  'constructor',
  'toString',
  'k',
  'K',
  'k ',
  'é',
  'e\u0301',
  '😀',
  '\'"`',
  '\\',
  '%_?:$1',
  '1',
];
const ODD_STRINGS = [
  '',
  '\0',
  '\ud800',
  '\udc00x',
  '😀',
  '\u2028',
  "it's",
  '"',
  '\\',
  '\\u0000',
  '?',
  '$1',
  ':name',
  'NULL',
];

const codeUnit = fc.nat({ max: 0xffff }).map((code) => String.fromCharCode(code));
const string = fc.oneof(
  fc.constantFrom(...ODD_STRINGS),
  fc.string({ maxLength: 8 }),
  fc.string({ unit: codeUnit, maxLength: 8 }),
);
/** Without -0, which is refused (I6). */
const aDouble = fc.double({ noNaN: true, noDefaultInfinity: true }).map((value) => value + 0);

const value = fc.anything({
  key: fc.oneof(fc.constantFrom(...ODD_KEYS), string),
  values: [string, fc.integer(), aDouble, fc.boolean(), fc.constant(null)],
  maxDepth: 2,
  maxKeys: 3,
});

const scope = fc.constantFrom('', '', 'user:', 'app:', 'temp:');
/** What every database takes as a key (contract D7). */
const plainKey = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...ODD_KEYS) },
  {
    weight: 1,
    arbitrary: fc.string({ unit: 'binary', minLength: 1, maxLength: 5 }).filter((key) => !key.includes('\0')),
  },
);
const stateKey = fc.tuple(scope, plainKey).map(([prefix, key]) => prefix + key);
const entry = fc.tuple(
  stateKey,
  fc.oneof({ weight: 15, arbitrary: value }, { weight: 1, arbitrary: fc.constant(undefined) }),
);
/** By definition, not by assignment: `__proto__` is a key like any other. */
const delta = fc.array(entry, { maxLength: 4 }).map((entries): Delta => Object.fromEntries(entries));

const slot = fc.nat({ max: 20 }).map((n) => SLOTS[n < SLOTS.length ? n : n % 2]!);
const handle = fc.nat({ max: 7 });
/** Equal ones, fractions, and ones that run backwards. */
const timestamp = fc.oneof(
  fc.integer({ min: 1, max: 5 }),
  fc.integer({ min: 1.7e12, max: 1.8e12 }),
  fc.double({ min: 1, max: 2e12, noNaN: true }),
);

const event: fc.Arbitrary<EventContent> = fc.record(
  {
    id: fc.nat({ max: 30 }),
    timestamp,
    fields: fc.record(
      {
        invocationId: string,
        author: string,
        branch: string,
        content: fc.record({
          role: fc.constant('model'),
          parts: fc.array(fc.record({ text: string }), { maxLength: 2 }),
        }),
        output: value,
        customMetadata: value,
        notYetInvented: value,
      },
      { requiredKeys: [] },
    ),
    stateDelta: delta,
  },
  { requiredKeys: ['id', 'timestamp', 'fields'] },
);

const few = fc.option(fc.nat({ max: 4 }), { nil: undefined });

/** What gives a session a past, and what goes back to it. */
function ofHistory({
  slot,
  key,
  delta,
  event,
}: {
  slot: fc.Arbitrary<Slot>;
  key: fc.Arbitrary<string>;
  delta: fc.Arbitrary<Delta>;
  event: fc.Arbitrary<EventContent>;
}): fc.WeightedArbitrary<Operation>[] {
  return [
    {
      weight: 3,
      arbitrary: fc.record({
        do: fc.constant('update state'),
        slot,
        state: delta,
        removed: fc.array(key, { maxLength: 2 }),
      }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('trim'), slot, keepLast: fc.nat({ max: 4 }) }) },
    {
      weight: 3,
      arbitrary: fc.record({ do: fc.constantFrom('rewind', 'fork'), slot, at: fc.nat({ max: 9 }) }),
    },
    {
      weight: 8,
      arbitrary: fc.record({
        do: fc.constant('append'),
        handle,
        events: fc.array(event, { minLength: 1, maxLength: 3 }),
        how: fc.constantFrom('in turn', 'in parallel', 'in one transaction'),
      }),
    },
    { weight: 3, arbitrary: fc.record({ do: fc.constant('replace newest'), handle, event }) },
  ];
}

const operation: fc.Arbitrary<Operation> = fc.oneof(
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('create', 'getOrCreate'), slot, state: delta }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('open'), slot }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constantFrom('delete', 'delete softly', 'restore', 'restore', 'erase user'), slot }),
  },
  { weight: 1, arbitrary: fc.constant({ do: 'prune' } as const) },
  ...ofHistory({ slot, key: stateKey, delta, event }),
  { weight: 1, arbitrary: fc.record({ do: fc.constant('retry'), handle, event: fc.nat({ max: 9 }) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('append partial'), handle, event }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('write temp'), handle, key: plainKey, value }) },
  {
    weight: 2,
    arbitrary: fc.record(
      {
        do: fc.constant('read'),
        slot,
        numRecentEvents: fc.nat({ max: 5 }),
        afterEvent: fc.record({ event: fc.nat({ max: 9 }), nudge: fc.constantFrom(-0.5, 0, 0.5) }),
      },
      { requiredKeys: ['do', 'slot'] },
    ),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('list'),
      userId: fc.option(
        slot.map(({ userId }) => userId),
        { nil: undefined },
      ),
      limit: few,
      offset: few,
      page: fc.option(fc.integer({ min: 1, max: 3 }), { nil: undefined }),
      order: fc.constantFrom(undefined, 'asc', 'desc'),
    }),
  },
);

/** Some ten operations; the first one makes a session, since the others have nothing to do without. */
export const sequence: fc.Arbitrary<Operation[]> = fc
  .tuple(
    fc.record({ do: fc.constant('create' as const), slot, state: delta }),
    fc.array(operation, { minLength: 4, maxLength: 14, size: 'max' }),
  )
  .map(([first, rest]) => [first, ...rest]);

const pastSlot = fc.constantFrom(SLOTS[0]!, SLOTS[1]!);
const pastKey = fc.constantFrom('j', 'k', 'user:k');
const pastDelta = fc.dictionary(pastKey, fc.nat({ max: 3 }), { maxKeys: 2 });
const pastEvent = fc.record({ id: fc.nat({ max: 30 }), timestamp, fields: fc.constant({}), stateDelta: pastDelta });

const pastOperation: fc.Arbitrary<Operation> = fc.oneof(
  ...ofHistory({ slot: pastSlot, key: pastKey, delta: pastDelta, event: pastEvent }),
  { weight: 2, arbitrary: fc.constant({ do: 'delete', slot: SLOTS[1]! } as const) },
);

/** Histories of two sessions, on few keys: a rewind seldom meets a rewritten event where all operations and keys are drawn. */
export const pastSequence: fc.Arbitrary<Operation[]> = fc
  .tuple(
    fc.record({ do: fc.constant('create' as const), slot: fc.constant(SLOTS[0]!), state: pastDelta }),
    fc.array(pastOperation, { minLength: 8, maxLength: 16, size: 'max' }),
  )
  .map(([first, rest]) => [first, ...rest]);
