import type { Session } from '@google/adk';
import { MikroORM } from '@mikro-orm/core';
import fc from 'fast-check';
import { adkEntities } from '../../../entities/index.js';
import { MikroOrmSessionService, SessionMaintenance, migrate } from '../../../src/index.js';
import { keyOf } from '../../support/harnesses/harness.js';
import { expectOfRandom } from '../../support/random.js';
import { availableDatabases, createDatabase, type DatabaseName } from '../../support/servers.js';
import { eventOf, plain } from '../tools.js';

/** Few ids and keys, so that events are rewritten, and appended again after a trim or a rewind. */
const anEvent = fc.record({
  id: fc.nat(7),
  stateDelta: fc.dictionary(fc.constantFrom('a', 'b', 'c', 'temp:t'), fc.nat(3), { maxKeys: 2 }),
});
type SomeEvent = typeof anEvent extends fc.Arbitrary<infer T> ? T : never;

const operations = {
  append: fc.record({ handle: fc.nat(2), events: fc.array(anEvent, { minLength: 1, maxLength: 3 }) }),
  'set state': fc.record({
    set: fc.dictionary(fc.constantFrom('a', 'b'), fc.nat(3)),
    remove: fc.subarray(['c', 'd']),
  }),
  trim: fc.nat(4),
  rewind: fc.nat(6),
  export: fc.constant(null),
  import: fc.constant(null),
  'write directly': fc.nat(2),
  open: fc.nat(2),
};

const operation = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant('append' as const), with: operations.append }) },
  fc.record({ do: fc.constant('set state' as const), with: operations['set state'] }),
  fc.record({ do: fc.constant('trim' as const), with: operations.trim }),
  fc.record({ do: fc.constant('rewind' as const), with: operations.rewind }),
  fc.record({ do: fc.constant('export' as const), with: operations.export }),
  fc.record({ do: fc.constant('import' as const), with: operations.import }),
  fc.record({ do: fc.constant('write directly' as const), with: operations['write directly'] }),
  fc.record({ do: fc.constant('open' as const), with: operations.open }),
);
type Operation = typeof operation extends fc.Arbitrary<infer T> ? T : never;

/** A session with three handles; each writes for itself, and the service of another process does the rest. */
class Handles {
  readonly #service: MikroOrmSessionService;
  readonly #others: MikroOrmSessionService;
  readonly #maintenance: SessionMaintenance;
  readonly #handles: Session[] = [];
  #key = { appName: '', userId: '', sessionId: '' };
  #exported: unknown[] = [];
  #time = 0;

  constructor({ em }: MikroORM) {
    this.#service = new MikroOrmSessionService(em);
    this.#others = new MikroOrmSessionService(em);
    this.#maintenance = new SessionMaintenance(em);
  }

  async begin(appName: string): Promise<void> {
    const session = await this.#service.createSession({ appName, userId: 'ada', state: { a: 0, d: 0 } });
    this.#key = keyOf(session);
    this.#handles.push(session, await this.#fresh(), await this.#fresh());
    for (const id of [0, 1, 2]) await this.#append(id % 3, [{ id, stateDelta: { b: id } }]);
  }

  async run(operation: Operation): Promise<void> {
    switch (operation.do) {
      case 'append':
        return this.#append(operation.with.handle, operation.with.events);
      case 'set state':
        return this.#others.updateState({ ...this.#key, ...operation.with });
      case 'trim':
        await this.#maintenance.trim({ ...this.#key, keepLast: operation.with });
        return;
      case 'rewind':
        return this.#allowing('ADK_INVALID_ARGUMENT', () =>
          this.#others.rewindSession(this.#key, { at: operation.with }),
        );
      case 'export': {
        this.#exported = [];
        for await (const record of this.#maintenance.exportSessions({ appName: this.#key.appName }))
          this.#exported.push(record);
        return;
      }
      case 'import':
        await this.#maintenance.importSessions(this.#exported, { onExisting: 'replace', force: true });
        return;
      case 'write directly': {
        const handle = this.#handles[operation.with]!;
        handle.state['direct'] = this.#time;
        return;
      }
      case 'open':
        this.#handles[operation.with] = await this.#fresh();
    }
  }

  async #append(handle: number, events: readonly SomeEvent[]): Promise<void> {
    const session = this.#handles[handle]!;
    const { direct } = session.state;
    const appended = events.map(({ id, stateDelta }) =>
      eventOf({ id: `e${id}`, author: `a${this.#time}`, timestamp: ++this.#time, actions: { stateDelta } }),
    );
    await this.#service.appendEvents({ session, events: appended });
    const fresh = await this.#fresh();
    expect(plain(session.events)).toEqual(plain(fresh.events));
    for (const event of appended) {
      const last = appended.findLast(({ id }) => id === event.id);
      if (event === last) expect(session.events.includes(event)).toBe(true);
    }
    const { direct: written = direct, 'temp:t': _, ...state } = session.state;
    // A history that is gone takes direct writes along.
    expect(state).toEqual(fresh.state);
    expect(written).toBe(direct);
    expect(session.lastUpdateTime).toBe(fresh.lastUpdateTime);
  }

  async #fresh(): Promise<Session> {
    return (await this.#others.getSession(this.#key))!;
  }

  async #allowing(code: string, call: () => Promise<unknown>): Promise<void> {
    try {
      await call();
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === code)) throw error;
    }
  }
}

const RUNS = 60;
const runsOn = (name: DatabaseName) =>
  name === availableDatabases()[0] || process.env['ADK_TEST_EXPLORE'] ? RUNS : RUNS / 6;

test.each(availableDatabases())(
  'B4 after random appends a handle equals a fresh one, whatever others did, on %s',
  async (name) => {
    const database = await createDatabase(name);
    const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    try {
      await migrate(orm);
      let app = 0;
      await expectOfRandom(
        'handles that are behind',
        fc.array(operation, { minLength: 5, maxLength: 25 }),
        async (operations) => {
          const handles = new Handles(orm);
          await handles.begin(`app ${app++}`);
          for (const each of operations) await handles.run(each);
        },
        { runs: runsOn(name) },
      );
    } finally {
      await orm.close(true);
      await database.drop();
    }
  },
  600_000,
);
