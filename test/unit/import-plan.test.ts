import { unfinishedAt } from '../../src/database/statements/stored-session.js';
import { InvalidArgumentError, SessionExistsError } from '../../src/model/errors.js';
import { ImportPlanner, type SessionBatch, type StoredHere } from '../../src/transfer/import-plan.js';

const key = { appName: 'app', userId: 'ada', sessionId: 's' };
const times = { createTime: 1, lastUpdateTime: 2 };
const event = (seq: number) => ({ seq, id: `e${seq}`, timestamp: 1, json: '{}', beginsTurn: false });
const events = (...numbers: number[]) => numbers.map(event);

/** A batch of a session of five events. */
function batch(part: Partial<SessionBatch> = {}): SessionBatch {
  const session = { type: 'session' as const, ...key, ...times, firstSeq: 1, lastSeq: 5, state: [], title: 'theirs' };
  return {
    session: { type: 'session', owner: key, state: [], session },
    events: events(1, 2, 3, 4, 5),
    isLast: true,
    ...part,
  };
}

function here(lastSeq: number, part: Partial<StoredHere['row']> = {}): StoredHere {
  const described = { deletedAt: undefined, title: 'ours', labels: null, forkedFrom: undefined };
  return {
    row: {
      key,
      ...times,
      incarnation: '1',
      origin: '0',
      status: 'active',
      firstSeq: 1,
      lastSeq,
      ...described,
      ...part,
    },
    drySeq: undefined,
  };
}
const nothing: StoredHere = { row: undefined, drySeq: undefined };

const planFor = (one: SessionBatch, stored: StoredHere, isForeign = false) =>
  new ImportPlanner(one, stored, isForeign).plan(new Map());

describe('ImportPlanner', () => {
  test('L1 a session that is not here is created, and hidden until all of its events are there', () => {
    const first = planFor(batch({ events: events(1, 2, 3), isLast: false }), nothing);
    expect(first).toMatchObject({ start: 'create', isNew: true, lastSeq: 3 });
    expect(first).toHaveProperty('end', expect.objectContaining({ kind: 'hide' }));
    expect(first).toHaveProperty('end.row.deletedAt', unfinishedAt(times.createTime));

    const last = planFor(batch({ events: events(4, 5) }), here(3, { deletedAt: unfinishedAt(times.createTime) }));
    expect(last).toMatchObject({ start: 'keep', isNew: false, events: events(4, 5), lastSeq: 5 });
    expect(last).toMatchObject({ end: { kind: 'complete', isFirst: true, row: { title: 'theirs' } } });
    expect(last).toHaveProperty('end.row.deletedAt', undefined);
  });

  test.each<[string, Partial<NonNullable<StoredHere['row']>>]>([
    ['created again', { createTime: 7 }],
    ['appended to', { lastUpdateTime: 1 }],
    ['trimmed', { firstSeq: 2 }],
    ['rewound', { lastSeq: 5 }],
  ])('L1 what an interrupted import left of a session that was %s since is replaced', (_, part) => {
    const row = { ...here(3, part).row!, deletedAt: unfinishedAt(part.createTime ?? times.createTime) };
    const plan = planFor(batch(), { row, drySeq: undefined });
    expect(plan).toMatchObject({ start: 'replace', isNew: true, events: events(1, 2, 3, 4, 5) });
  });

  test('L1 what is here is skipped, and a session that has gone on here keeps its state', () => {
    expect(planFor(batch(), here(5))).toMatchObject({
      events: [],
      lastSeq: 5,
      end: { kind: 'complete', isFirst: false, wasDeleted: false },
    });
    expect(planFor(batch(), here(7))).toMatchObject({ events: [], lastSeq: 7, end: { kind: 'leave' } });
  });

  test('L1 what is left of a deletion is replaced', () => {
    const begun = here(5, { status: 'ending', deletedAt: 3 });
    expect(planFor(batch(), begun)).toMatchObject({ start: 'replace', isNew: true, events: events(1, 2, 3, 4, 5) });
  });

  test('L2 records of another store leave titles and soft deletions as they are', () => {
    const row = { title: 'ours', deletedAt: 3 };
    expect(planFor(batch(), here(2, row), true)).toMatchObject({ end: { kind: 'complete', row } });
  });

  test('L2 a dry run counts as written what it would write', () => {
    const second = planFor(batch({ events: events(4, 5) }), { row: undefined, drySeq: 3 });
    expect(second).toMatchObject({ isNew: false, lastSeq: 5 });
  });

  test.each([
    ['another session', batch(), here(5, { createTime: 9 }), SessionExistsError, /created at another time/],
    [
      'events that are missing between two',
      batch({ events: events(1, 2, 4) }),
      nothing,
      InvalidArgumentError,
      /2 and 4/,
    ],
    [
      'events that are missing at the end',
      batch({ events: events(1, 2) }),
      nothing,
      InvalidArgumentError,
      /after number 2/,
    ],
  ])('L1 %s: refused', (_, one, stored, type, message) => {
    expect(() => planFor(one, stored)).toThrow(type);
    expect(() => planFor(one, stored)).toThrow(message);
  });

  test('L1 an event that has another id here is refused', () => {
    const planner = new ImportPlanner(batch(), here(2));
    expect(planner.known).toEqual([1, 2]);
    expect(() => planner.plan(new Map([[2, { id: 'other' }]]))).toThrow(SessionExistsError);
  });
});
