import { createEvent } from '@google/adk';
import { Links } from '../../packages/studio/src/links.js';
import { Pairs, eventList } from '../../packages/studio/src/pages/event-view.js';
import { Hues } from '../../packages/studio/src/pages/layout.js';
import { ModelTimes } from '../../packages/studio/src/operations/durations.js';
import { turnsOf } from '../../packages/studio/src/waterfall.js';

/** An event, and when it was stored, in ms after the beginning. */
const at = (timestamp: number, appendTime: number | undefined, event: Parameters<typeof createEvent>[0]) => ({
  event: createEvent({ timestamp, author: 'agent', ...event }),
  ...(appendTime !== undefined && { appendTime }),
});
const numbered = (events: ReturnType<typeof at>[]) => events.map((event, i) => ({ seq: i + 1, ...event }));
const call = (id: string, name = 'look_up') => ({ content: { parts: [{ functionCall: { id, name, args: {} } }] } });
const answer = (id: string, response = {}) => ({
  content: { parts: [{ functionResponse: { id, name: 'look_up', response } }] },
});
const said = (text: string, author = 'agent') => ({ author, content: { parts: [{ text }] } });
const user = (text: string) => said(text, 'user');
const shown = (events: ReturnType<typeof at>[], now = 0) =>
  turnsOf(numbered(events), now).map(({ lanes }) =>
    Object.fromEntries(
      lanes.map(({ name, blocks }) => [name, blocks.map((each) => [each.kind, each.start, each.end])]),
    ),
  );

test('a model lasts from its stamp to its append, and a tool from there to the append of its answer', () => {
  const events = [
    at(1, 10, user('go')),
    at(20, 3_000, call('a')),
    at(12_000, 12_500, answer('a')),
    at(12_600, 14_000, said('done')),
    at(20_000, 20_010, user('again')),
    at(20_100, 21_000, said('yes')),
  ];
  expect(shown(events)).toEqual([
    {
      agent: [
        ['model', 20, 3_000],
        ['tool', 3_000, 12_500],
        ['model', 12_600, 14_000],
      ],
    },
    { agent: [['model', 20_100, 21_000]] },
  ]);
});

test('parallel branches have a lane each, on one axis', () => {
  const branch = (name: string) => ({ author: name, branch: `fan.${name}` });
  const events = [
    at(1, 1, user('go')),
    at(10, 1_000, { ...call('same'), ...branch('fr') }),
    at(20, 2_000, { ...call('same'), ...branch('pl') }),
    at(4_000, 4_000, { ...answer('same'), ...branch('pl') }),
    at(5_000, 5_000, { ...answer('same', { isError: true }), ...branch('fr') }),
  ];
  const [turn] = turnsOf(numbered(events), 9_000);
  expect(turn?.lanes).toMatchObject([
    {
      name: 'fan.fr',
      blocks: [{ kind: 'model' }, { kind: 'tool', start: 1_000, end: 5_000, hasFailed: true, answer: 5 }],
    },
    {
      name: 'fan.pl',
      blocks: [{ kind: 'model' }, { kind: 'tool', start: 2_000, end: 4_000, hasFailed: false, answer: 4 }],
    },
  ]);
  expect(turn).toMatchObject({ start: 1, end: 5_000 });
});

test('what waits lasts until now, and does not squeeze the rest of the picture', () => {
  const events = [at(1, 1, user('go')), at(10, 1_000, { ...call('w', 'ask'), longRunningToolIds: ['w'] })];
  const [turn] = turnsOf(numbered(events), 86_400_000);
  expect(turn?.lanes[0]?.blocks[1]).toMatchObject({ kind: 'wait', start: 1_000, end: 86_400_000, isOpen: true });
  expect(turn).toMatchObject({ end: 86_400_000, shownUntil: 1_249.75 });
  // A tool that runs is seen whole; one that never answered takes no room.
  const tool = numbered([at(1, 1, user('go')), at(10, 1_000, call('r'))]);
  expect(turnsOf(tool, 61_000)).toMatchObject([{ shownUntil: 61_000 }]);
  expect(turnsOf(tool, 86_400_000)).toMatchObject([{ shownUntil: 1_000 }]);
});

test('of events that were stored long after they were made, only what their stamps say is shown', () => {
  const late = 86_400_000;
  const events = [at(1, late, user('go')), at(20, late, call('a')), at(5_000, late, answer('a'))];
  expect(shown(events)).toEqual([
    {
      agent: [
        ['model', 20, 20],
        ['tool', 20, 5_000],
      ],
    },
  ]);
  // Nothing follows it, but no request takes 444 days.
  expect(shown([at(20, 444 * late, said('done'))])).toEqual([{ agent: [['model', 20, 20]] }]);
  // Of a store that does not keep the times.
  expect(shown([at(1, undefined, user('go')), at(20, undefined, said('done'))])).toEqual([
    { agent: [['model', 20, 20]] },
  ]);
});

test('a page that follows a session reads each event as often, however many came before', () => {
  const session = { appName: 'app', userId: 'ada', sessionId: 's' };
  const around = { links: new Links(''), session, hues: new Hues([]), isNewest: true, mayAnswer: true };
  const pairs = new Pairs();
  let reads = 0;
  const readsOf = (count: number, from: number) => {
    reads = 0;
    for (let seq = from + 1; seq <= from + count; seq++) {
      const { event } = at(seq, undefined, { ...said('yes'), usageMetadata: { promptTokenCount: 1 } });
      Object.defineProperty(event, 'timestamp', { enumerable: true, get: () => (reads++, seq * 100) });
      eventList([{ seq, event, appendTime: seq * 100 + 250 }], around, pairs);
    }
    return reads;
  };
  const first = readsOf(10, 0);
  readsOf(100, 10);
  expect(readsOf(10, 110)).toBeLessThan(first * 1.5);
  // Its end is known better once the next event has come.
  expect([pairs.modelMs(119), pairs.modelMs(120)]).toEqual([100, 250]);
});

test('an error without content is what a model did, in the picture and in the list', () => {
  const events = numbered([at(1, 1, user('go')), at(20, 3_000, { errorCode: 'OVERLOADED' })]);
  expect(shown(events)).toEqual([{ agent: [['model', 20, 3_000]] }]);
  const session = { appName: 'app', userId: 'ada', sessionId: 's' };
  const around = { links: new Links(''), session, hues: new Hues([]), isNewest: true, mayAnswer: true };
  const [said, failed] = [...eventList(events, around).values()].map(({ text }) => text);
  expect([said, failed].map((view) => view?.includes('>Why<'))).toEqual([false, true]);
});

test('usage adds up what the events of a session say', () => {
  const used = { ...said('yes'), usageMetadata: { promptTokenCount: 1 } };
  const events = numbered([
    at(1, 1, user('go')),
    at(20, 3_000, used),
    // Appended by a batch, after the agent had gone on.
    at(4_000, 9_000, used),
    at(5_000, 9_000, used),
    at(10_000, 3_000_000, used),
    at(20_000, 3_000_000, used),
    at(4_000_000, undefined, used),
    at(4_100_000, 4_100_250, used),
    at(4_200_000, 4_200_100, { ...used, branch: 'side' }),
    at(4_300_000, 4_300_400, used),
  ]);
  const pairs = new Pairs();
  pairs.add(events);
  const each = events.map(({ seq }) => pairs.modelMs(seq) ?? 0);
  expect(each).toEqual([0, 2_980, 1_000, 4_000, 0, 2_980_000, 0, 250, 100, 400]);
  const sums = new Map<number, number>();
  const times = new ModelTimes((seq: number, ms) => sums.set(seq, (sums.get(seq) ?? 0) + ms));
  for (const event of events) times.follow({ appName: 'a', userId: 'u', sessionId: 's' }, event, event.seq);
  expect(events.map(({ seq }) => sums.get(seq) ?? 0)).toEqual(each);
});
