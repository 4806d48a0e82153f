import { createEvent, type Event, type Session } from '@google/adk';
import { MikroORM, type EntityManager, type Options } from '@mikro-orm/core';
import { adkEntities } from '../../../entities/index.js';
import {
  EventLog,
  MikroOrmArtifactService,
  MikroOrmMemoryService,
  MikroOrmSessionService,
  SessionLeases,
  SessionMaintenance,
  migrate,
  type MaintenanceResult,
} from '../../../src/index.js';
import { keyOf } from '../processes/protocol.js';
import { readTables, upTo } from '../processes/tables.js';
import { DATABASES } from '../../support/harnesses/databases.js';
import { SERVERS, availableServers, createDatabase, type TestDatabase } from '../../support/servers.js';
import { Proxy } from './proxy.js';

const available = availableServers();

/** Long enough for a server that answers on a busy machine, and short enough for a test. */
const TIMEOUT_MS = 700;

const eventOf = (id: string, stateDelta: Record<string, unknown> = {}): Event =>
  createEvent({ id, author: 'agent', actions: { stateDelta } });

/** Only the end of a message, since the checks of settings contain the word, too. */
const COMMIT = /\bcommit(\0|;\nend|$)/;

// Jest refuses an empty describe.each, and there may be no server.
(available.length > 0 ? describe : describe.skip)('under fire', () => {
  describe.each(available.length > 0 ? available : SERVERS)('%s', (name) => {
    const { server, statements } = DATABASES[name];
    const { append: appending, refusal, deadlock, commitFailed, crash } = server.messages;
    let database: TestDatabase;
    let proxy: Proxy;
    /** Connected to the server directly. */
    let direct: MikroORM;
    let others: MikroOrmSessionService;
    let key: ReturnType<typeof keyOf>;
    const orms: MikroORM[] = [];

    /** Opens an ORM that connects through the proxy. */
    async function open(max = 1, more: Options = {}): Promise<MikroORM> {
      const orm = await MikroORM.init({
        ...database.options,
        clientUrl: proxy.url,
        entities: adkEntities(),
        pool: { min: 0, max },
        ...more,
      });
      orms.push(orm);
      return orm;
    }

    beforeAll(async () => {
      jest.spyOn(console, 'log').mockImplementation();
      database = await createDatabase(name);
      direct = await MikroORM.init({ ...database.options, entities: adkEntities() });
      await migrate(direct);
      others = new MikroOrmSessionService(direct.em);
    });
    beforeEach(async () => {
      proxy = await Proxy.before(database.url);
      key = keyOf(expect.getState().currentTestName!.slice(-100));
    });
    afterEach(async () => {
      proxy.open();
      proxy.cut();
      // mysql2 reports connections that were cut.
      for (const orm of orms.splice(0)) await orm.close(true).catch(() => undefined);
      await proxy.close();
    });
    afterAll(async () => {
      await direct.close(true);
      await database.drop();
      jest.restoreAllMocks();
    });

    const state = async () => (await readTables(direct.em, key.sessionId)).state;

    describe('O3 nothing waits without end', () => {
      test('appends and reads on connections that are dead', async () => {
        const service = new MikroOrmSessionService((await open()).em, { timeoutMs: TIMEOUT_MS });
        const session = await service.createSession(key);
        for (const id of ['a', 'b', 'c']) {
          proxy.freeze();
          await service.appendEvent({ session, event: eventOf(id, { last: id }) });
          proxy.freeze();
          expect((await service.getSession(key))?.events.at(-1)?.id).toBe(id);
        }
        proxy.freeze();
        await service.updateState({ ...key, set: { after: true } });
        proxy.freeze();
        expect((await service.listSessions(key)).sessions.length).toBeGreaterThan(0);
        expect(await readTables(direct.em, key.sessionId)).toMatchObject({ seqs: [1, 2, 3], ids: ['a', 'b', 'c'] });
        proxy.freeze();
        await service.deleteSession(key);
        expect(await others.getSession(key)).toBeUndefined();
      });

      test('a connection that is ended opens no other, whose failure nothing would handle', async () => {
        const service = new MikroOrmSessionService((await open()).em, { timeoutMs: TIMEOUT_MS });
        const session = await service.createSession(key);
        let kills = 0;
        void proxy.loseAnswer(/kill/i, () => Promise.resolve(kills++));
        const frozen = proxy.freezeAt(appending);
        await service.appendEvent({ session, event: eventOf('a') });
        await frozen;
        expect(kills).toBe(0);
        expect((await readTables(direct.em, key.sessionId)).ids).toEqual(['a']);
      });

      test('a server that does not answer is reported as one', async () => {
        const session = await others.createSession(key);
        const told: unknown[] = [];
        const { em } = await open();
        const patient = new MikroOrmSessionService(em);
        const impatient = new MikroOrmSessionService(em, {
          timeoutMs: TIMEOUT_MS / 5,
          retry: { forMs: TIMEOUT_MS / 5 },
          onError: (error) => told.push(error),
        });
        const handle = (await patient.getSession(key))!;
        proxy.fallSilent();
        await expect(impatient.appendEvent({ session: handle, event: eventOf('a') })).rejects.toMatchObject({
          code: 'ADK_DATABASE',
        });
        expect(told).toHaveLength(1);
        proxy.open();
        // Ends the attempt to connect, for which a driver waits as long as the host has configured.
        proxy.cut();
        // The pool still has its only slot.
        await patient.appendEvent({ session: handle, event: eventOf('b') });
        expect((await readTables(direct.em, session.id)).ids.at(-1)).toBe('b');
      });

      test('a watcher whose connection is dead ends when its signal fires', async () => {
        const log = new EventLog((await open()).em, { pollIntervalMs: 5 });
        const end = new AbortController();
        const watched = log.watch(await log.head(), {}, { signal: end.signal })[Symbol.asyncIterator]();
        const next = watched.next();
        // Any message: the poll is a prepared statement, so its text is sent only once.
        await proxy.freezeAt(/[^]/);
        end.abort();
        expect((await next).done).toBe(true);
      });

      test('a lease whose connection is dead is released', async () => {
        await others.createSession(key);
        const leases = new SessionLeases((await open()).em, { ttlMs: TIMEOUT_MS });
        const result = await leases.run(key, { holder: 'a' }, () => {
          proxy.fallSilent();
          return Promise.resolve('done');
        });
        expect(result).toBe('done');
      });
    });

    describe('O1 a write takes effect once when its answer is lost', () => {
      test('a value that somebody else has set since is not overwritten', async () => {
        const service = new MikroOrmSessionService((await open()).em);
        await service.createSession({ ...key, state: { gone: 1 } });
        const lost = proxy.loseAnswer(COMMIT, () =>
          others.updateState({ ...key, set: { a: 'newer', 'user:a': 'newer', 'app:a': 'newer', gone: 'again' } }),
        );
        await service.updateState({ ...key, set: { a: 1, 'user:a': 1, 'app:a': 1 }, remove: ['gone'] });
        await lost;
        expect(await state()).toMatchObject({ a: 'newer', 'user:a': 'newer', 'app:a': 'newer', gone: 'again' });
      });

      test('an update of state that did not reach the server is repeated', async () => {
        const service = new MikroOrmSessionService((await open()).em, { timeoutMs: TIMEOUT_MS });
        await service.createSession(key);
        const frozen = proxy.freezeAt(COMMIT);
        await service.updateState({ ...key, set: { a: 1 } });
        await frozen;
        expect(await state()).toMatchObject({ a: 1 });
      });

      test('a session that somebody has created again is not deleted', async () => {
        const service = new MikroOrmSessionService((await open()).em);
        await service.createSession(key);
        const lost = proxy.loseAnswer(COMMIT, async () => {
          const session = await others.createSession(key);
          await others.appendEvent({ session, event: eventOf('acknowledged') });
        });
        await service.deleteSession(key);
        await lost;
        expect((await readTables(direct.em, key.sessionId)).ids).toEqual(['acknowledged']);
      });

      test.each<[string, (em: EntityManager) => Promise<unknown>]>([
        ['a deletion', (em) => new MikroOrmSessionService(em).deleteSession(key)],
        ['an erasure', (em) => new SessionMaintenance(em).eraseUser({ userId: key.userId })],
      ])('O9 %s that a retry finds done is acknowledged after a commit that waits for a standby', async (_, remove) => {
        const { em } = await open();
        await new MikroOrmSessionService(em).createSession(key);
        const lost = proxy.loseAnswer(COMMIT);
        let isWritten = false;
        const written = proxy.loseAnswer(/(update|insert into) \S*adk_counters/).then(() => (isWritten = true));
        await remove(em);
        await lost;
        expect(isWritten).toBe(true);
        await written;
      });

      test('a title that somebody else has set since is not overwritten', async () => {
        const service = new MikroOrmSessionService((await open()).em);
        await service.createSession(key);
        const lost = proxy.loseAnswer(COMMIT, () => others.describeSession(key, { title: 'newer' }));
        await service.describeSession(key, { title: 'older' });
        await lost;
        const found = await others.findSessions({ appName: key.appName, title: 'newer' });
        expect(found.sessions).toHaveLength(1);
      });

      test('a deleted session that somebody has restored since is not deleted again, and the other way round', async () => {
        const service = new MikroOrmSessionService((await open()).em, { deletion: 'soft' });
        await service.createSession(key);
        const restored = proxy.loseAnswer(COMMIT, () => others.restoreSession(key));
        await service.deleteSession(key);
        await restored;
        expect(await others.getSession(key)).toBeDefined();
        await service.deleteSession(key);
        const softly = new MikroOrmSessionService(direct.em, { deletion: 'soft' });
        const deleted = proxy.loseAnswer(COMMIT, () => softly.deleteSession(key));
        await service.restoreSession(key);
        await deleted;
        expect(await others.getSession(key)).toBeUndefined();
      });

      test('appends that are written together', async () => {
        const service = new MikroOrmSessionService((await open()).em, { timeoutMs: TIMEOUT_MS });
        await service.createSession(key);
        const handles = await Promise.all(upTo(4).map(async () => (await service.getSession(key))!));
        const round = (name: string) =>
          Promise.all(
            handles.map((session, i) =>
              service.appendEvent({ session, event: eventOf(`${name} ${i}`, { last: `${name} ${i}`, [name]: i }) }),
            ),
          );
        const faults = {
          'answer lost': () => proxy.loseAnswer(appending),
          'not received': () => proxy.freezeAt(appending),
          'answer lost, and somebody appends': () =>
            proxy.loseAnswer(appending, async () => {
              const session = (await others.getSession(key))!;
              await others.appendEvent({ session, event: eventOf('of somebody else', { else: true }) });
            }),
        };
        await round('first');
        for (const [name, fault] of Object.entries(faults)) {
          const met = fault();
          await round(name);
          await met;
        }
        const stored = await readTables(direct.em, key.sessionId);
        const ids = ['first', ...Object.keys(faults)].flatMap((name) => handles.map((_, i) => `${name} ${i}`));
        expect(stored.ids).toEqual([...ids, 'of somebody else']);
        expect(stored.seqs).toEqual(upTo(ids.length + 1));
        for (const handle of handles) {
          expect(handle.events.map(({ id }) => id)).toEqual(stored.ids);
          expect(stored.state).toMatchObject(handle.state);
        }
      });

      test('appends to several sessions at once', async () => {
        const service = new MikroOrmSessionService((await open(2)).em, { timeoutMs: TIMEOUT_MS });
        const keys = upTo(12).map((n) => keyOf(`${n} ${key.sessionId}`.slice(0, 100)));
        const sessions = await Promise.all(keys.map((each) => service.createSession(each)));
        const round = (name: string) =>
          Promise.all(
            sessions.map((session, i) =>
              service.appendEvent({ session, event: eventOf(name, { last: name, [name]: i }) }),
            ),
          );
        const faults = {
          'answer lost': () => proxy.loseAnswer(appending),
          'not received': () => proxy.freezeAt(appending),
          'answer lost, and somebody appends': () =>
            proxy.loseAnswer(appending, async () => {
              const session = (await others.getSession(keys[5]!))!;
              await others.appendEvent({ session, event: eventOf('of somebody else', { else: true }) });
            }),
        };
        await round('first');
        for (const [name, fault] of Object.entries(faults)) {
          const met = fault();
          await round(name);
          await met;
        }
        for (const [i, session] of sessions.entries()) {
          const stored = await readTables(direct.em, keys[i]!.sessionId);
          const ids = ['first', ...Object.keys(faults)];
          expect(stored.ids.filter((id) => id !== 'of somebody else')).toEqual(ids);
          expect(stored.ids).toHaveLength(i === 5 ? 5 : 4);
          expect(stored.seqs).toEqual(upTo(stored.ids.length));
          expect(session.events.map(({ id }) => id)).toEqual(stored.ids);
          expect(stored.state).toMatchObject(session.state);
          expect(session.state).toMatchObject({ last: ids.at(-1), [ids.at(-1)!]: i });
        }
      });

      test('with reject an append that is stored has not failed', async () => {
        const service = new MikroOrmSessionService((await open()).em, { onStaleSession: 'reject' });
        const session = await service.createSession(key);
        await service.appendEvent({ session, event: eventOf('first') });
        const lost = proxy.loseAnswer(appending, async () => {
          const other = (await others.getSession(key))!;
          await others.appendEvent({ session: other, event: eventOf('b') });
        });
        await service.appendEvent({ session, event: eventOf('a') });
        await lost;
        expect((await readTables(direct.em, key.sessionId)).ids).toEqual(['first', 'a', 'b']);
        expect(session.events.map(({ id }) => id)).toEqual(['first', 'a', 'b']);
      });

      test('an append under a lease that is lost since has not failed', async () => {
        await others.createSession(key);
        const orm = await open();
        const lease = await new SessionLeases(orm.em).acquire(key, { holder: 'a' });
        const session = (await lease.sessionService.getSession(key))!;
        await lease.sessionService.appendEvent({ session, event: eventOf('first') });
        const lost = proxy.loseAnswer(appending, () => expire(key));
        await lease.sessionService.appendEvent({ session, event: eventOf('a') });
        await lost;
        await expect(lease.sessionService.appendEvent({ session, event: eventOf('b') })).rejects.toMatchObject({
          code: 'ADK_LEASE_LOST',
        });
        expect((await readTables(direct.em, key.sessionId)).ids).toEqual(['first', 'a']);
      });

      test('an append without a lease, where somebody has taken one since, has not failed', async () => {
        const service = new MikroOrmSessionService((await open()).em, { onUnleasedAppend: 'reject' });
        const session = await service.createSession(key);
        await service.appendEvent({ session, event: eventOf('first') });
        const leases = new SessionLeases(direct.em);
        const lost = proxy.loseAnswer(appending, () => leases.acquire(key, { holder: 'b' }));
        await service.appendEvent({ session, event: eventOf('a') });
        await lost;
        await expect(service.appendEvent({ session, event: eventOf('b') })).rejects.toMatchObject({
          code: 'ADK_LEASE_HELD',
        });
        expect((await readTables(direct.em, key.sessionId)).ids).toEqual(['first', 'a']);
      });

      if (commitFailed) {
        test('and when the server says that a commit has failed which is stored', async () => {
          const service = new MikroOrmSessionService((await open()).em);
          const session = await service.createSession(key);
          await service.appendEvent({ session, event: eventOf('first') });
          const append = proxy.misreport(appending, commitFailed(), async () => {
            const other = (await others.getSession(key))!;
            await others.appendEvent({ session: other, event: eventOf('b') });
          });
          await service.appendEvent({ session, event: eventOf('a') });
          await append;
          expect((await readTables(direct.em, key.sessionId)).ids).toEqual(['first', 'a', 'b']);
          const update = proxy.misreport(COMMIT, commitFailed(), () =>
            others.updateState({ ...key, set: { a: 'newer' } }),
          );
          await service.updateState({ ...key, set: { a: 1 } });
          await update;
          expect(await state()).toMatchObject({ a: 'newer' });
        });

        test('and when a commit has failed which is not stored', async () => {
          const service = new MikroOrmSessionService((await open()).em);
          const session = await service.createSession(key);
          await service.appendEvent({ session, event: eventOf('first') });
          const append = proxy.answer(appending, commitFailed);
          await service.appendEvent({ session, event: eventOf('a') });
          await append;
          expect((await readTables(direct.em, key.sessionId)).ids).toEqual(['first', 'a']);
        });
      }

      if (crash) {
        test('and when the server crashes at a commit that is stored, since its log finds no space', async () => {
          const service = new MikroOrmSessionService((await open()).em);
          const session = await service.createSession(key);
          await service.appendEvent({ session, event: eventOf('first') });
          const append = proxy.misreport(appending, crash(), () => Promise.resolve());
          await service.appendEvent({ session, event: eventOf('a') });
          await append;
          expect((await readTables(direct.em, key.sessionId)).ids).toEqual(['first', 'a']);
        });
      }

      test('if nobody can know, the error says so', async () => {
        const service = new MikroOrmSessionService((await open()).em, { retry: { attempts: 1 } });
        await service.createSession(key);
        const lost = proxy.loseAnswer(COMMIT);
        await expect(service.updateState({ ...key, set: { a: 1 } })).rejects.toMatchObject({ outcome: 'unknown' });
        await lost;
      });
    });

    describe('O1 statements that travel together take effect once', () => {
      /** What somebody does when a call has committed, and what must be there after both. */
      interface Case {
        /** @returns the call. */
        prepare: (em: EntityManager) => Promise<() => Promise<unknown>>;
        meanwhile?: () => Promise<unknown>;
        check: (result: unknown) => Promise<unknown>;
        expected: unknown;
        /** The message whose answer is lost; the commit by default. */
        text?: RegExp;
      }
      const asks = createEvent({
        ...{ id: 'asks', author: 'agent', longRunningToolIds: ['c'] },
        content: { role: 'model', parts: [{ functionCall: { id: 'c', name: 'approve', args: {} } }] },
      });
      const answers = createEvent({
        ...{ id: 'answers', author: 'user' },
        content: { role: 'user', parts: [{ functionResponse: { id: 'c', name: 'approve', response: {} } }] },
      });
      const says = createEvent({
        id: 'says',
        author: 'user',
        content: { role: 'user', parts: [{ text: 'likes tea' }] },
      });
      const appendElse = async () =>
        others.appendEvent({ session: (await others.getSession(key))!, event: eventOf('else') });
      const ids = async () => (await readTables(direct.em, key.sessionId)).ids;
      const openCalls = async () => {
        const { calls } = await others.findOpenCalls({ appName: key.appName });
        return calls.filter(({ sessionId }) => sessionId === key.sessionId).map(({ id }) => id);
      };
      const { appName, userId } = keyOf('');
      const artifacts = () => new MikroOrmArtifactService(direct.em);
      const memories = () => new MikroOrmMemoryService(direct.em);
      const file = () => ({ ...key, filename: 'file' });
      const text = (part: unknown) => (part as { text?: string } | undefined)?.text;
      const tea = { id: 'tea', content: { role: 'user', parts: [{ text: 'likes tea' }] } };
      const owned = () => ({ appName, userId: `${userId} ${key.sessionId}`.slice(0, 100) });
      const found = async () =>
        (await memories().searchMemory({ ...owned(), query: 'tea' })).memories.map(({ id }) => id);
      const sessionOf = async (em: EntityManager, ...events: Event[]) => {
        const service = new MikroOrmSessionService(em, { onAnsweredCall: 'reject', onStaleSession: 'reject' });
        const session = await service.createSession(key);
        for (const event of events) await service.appendEvent({ session, event });
        return { service, session };
      };
      const append =
        (event: Event, ...before: Event[]) =>
        async (em: EntityManager) => {
          const { service, session } = await sessionOf(em, ...before);
          return () => service.appendEvent({ session, event });
        };
      const cases: Record<string, Case> = {
        createSession: {
          prepare: async (em) => {
            const service = new MikroOrmSessionService(em);
            await service.getSession(key);
            return () => service.createSession({ ...key, state: { a: 1 } });
          },
          meanwhile: () => others.updateState({ ...key, set: { a: 'newer' } }),
          // The app's state is of all tests.
          check: async () => (await state())?.['a'],
          expected: 'newer',
        },
        'an append that opens a call': {
          prepare: append(asks),
          meanwhile: appendElse,
          check: async () => [await ids(), await openCalls()],
          expected: [['asks', 'else'], ['c']],
        },
        'an append that answers a call': {
          prepare: append(answers, asks),
          meanwhile: appendElse,
          check: async () => [await ids(), await openCalls()],
          expected: [['asks', 'answers', 'else'], []],
        },
        'an append with a call that waits': {
          prepare: append(says, asks),
          meanwhile: appendElse,
          check: ids,
          expected: ['asks', 'says', 'else'],
        },
        saveArtifact: {
          prepare: async (em) => {
            await sessionOf(em);
            return () => new MikroOrmArtifactService(em).saveArtifact({ ...file(), artifact: { text: 'ours' } });
          },
          meanwhile: () => artifacts().saveArtifact({ ...file(), artifact: { text: 'theirs' } }),
          check: async (version) => [
            version,
            await artifacts().listVersions(file()),
            text(await artifacts().loadArtifact(file())),
          ],
          expected: [0, [0, 1], 'theirs'],
        },
        deleteArtifact: {
          prepare: async (em) => {
            await sessionOf(em);
            const service = new MikroOrmArtifactService(em);
            await service.saveArtifact({ ...file(), artifact: { text: 'ours' } });
            return () => service.deleteArtifact(file());
          },
          meanwhile: () => artifacts().saveArtifact({ ...file(), artifact: { text: 'theirs' } }),
          check: async () => text(await artifacts().loadArtifact(file())),
          expected: 'theirs',
        },
        addSessionToMemory: {
          prepare: async (em) => {
            const id = { ...owned(), sessionId: 's' };
            const service = new MikroOrmSessionService(em);
            const session = await service.createSession(id);
            await service.appendEvent({ session, event: says });
            return () => new MikroOrmMemoryService(em).addSessionToMemory(session);
          },
          // Not one that was forgotten, which would be left out by its mark.
          meanwhile: () =>
            memories().addMemory({ ...owned(), sessionId: 's', memories: [{ ...tea, id: 'says', author: 'b' }] }),
          check: async () => (await memories().listMemories({ ...owned(), limit: 9 })).map(({ author }) => author),
          expected: ['b'],
        },
        addMemory: {
          prepare: async (em) => {
            const service = new MikroOrmMemoryService(em);
            await service.listMemories({ ...owned(), limit: 1 });
            return () => service.addMemory({ ...owned(), memories: [tea] });
          },
          meanwhile: () => memories().forget({ ...owned(), all: true }),
          check: found,
          expected: [],
        },
        forget: {
          prepare: async (em) => {
            const service = new MikroOrmMemoryService(em);
            await service.addMemory({ ...owned(), memories: [tea] });
            return () => service.forget({ ...owned(), memoryId: 'tea' });
          },
          meanwhile: () => memories().addMemory({ ...owned(), memories: [tea] }),
          check: async (count) => [count, await found()],
          expected: [1, ['tea']],
        },
        'the acquisition of a lease': {
          prepare: async (em) => {
            await sessionOf(em);
            return () => new SessionLeases(em).acquire(key, { holder: 'a' });
          },
          check: async (lease) => {
            const { sessionService, release } = lease as Awaited<ReturnType<SessionLeases['acquire']>>;
            await sessionService.appendEvent({ session: (await sessionService.getSession(key))!, event: says });
            await release.call(lease);
            return ids();
          },
          expected: ['says'],
          text: /lease_since = case/,
        },
        readEvents: {
          prepare: async (em) => {
            const { service } = await sessionOf(em, says);
            return () => service.readEvents(key);
          },
          check: async (page) => (page as { events: { seq: number }[] }).events.map(({ seq }) => seq),
          expected: [1],
          text: /first_seq, last_seq, page/,
        },
        searchMemory: {
          prepare: async (em) => {
            const service = new MikroOrmMemoryService(em);
            await service.addMemory({ ...owned(), memories: [tea] });
            return async () => (await service.searchMemory({ ...owned(), query: 'tea' })).memories.map(({ id }) => id);
          },
          check: (result) => Promise.resolve(result),
          expected: ['tea'],
          text: /few/,
        },
        ...(name === 'postgresql' && {
          'an append with settings of the host': {
            prepare: async (em: EntityManager) => {
              const postgresql = { settings: () => ({ 'app.user': 'ada' }) };
              const service = new MikroOrmSessionService(em, { postgresql });
              const session = await service.createSession(key);
              return () => service.appendEvent({ session, event: says });
            },
            meanwhile: appendElse,
            check: ids,
            expected: ['says', 'else'],
          },
        }),
      };

      test.each(Object.entries(cases))('%s: its answer is lost', async (_, { prepare, text = COMMIT, ...made }) => {
        const call = await prepare((await open()).em);
        const lost = proxy.loseAnswer(text, made.meanwhile);
        const result = await call();
        await lost;
        expect(await made.check(result)).toEqual(made.expected);
      });

      test.each(Object.entries(cases))(
        '%s: it does not reach the server',
        async (_, { prepare, text = COMMIT, ...made }) => {
          const orm = await open();
          const call = await prepare(orm.em);
          const frozen = proxy.freezeAt(text);
          const calling = call();
          await frozen;
          // As a network does that knows no way any more.
          proxy.cut();
          const result = await calling;
          await made.meanwhile?.();
          expect(await made.check(result)).toEqual(made.expected);
        },
      );
    });

    describe('O1 the error of a call of several transactions says what is stored', () => {
      const DAY = 24 * 3_600_000;
      /** Each session has its own transaction. The user has no state, which would take another one. */
      const each = { batchSize: 3, pauseMs: 0 };
      const calls: Record<
        string,
        (
          by: SessionMaintenance,
          records: unknown[],
          onProgress: (result: MaintenanceResult) => void,
        ) => Promise<unknown>
      > = {
        prune: (by, _, onProgress) => by.prune({ userId: 'prune', idleFor: DAY, ...each, onProgress }),
        trim: (by, _, onProgress) => by.trim({ userId: 'trim', keepLast: 0, ...each, batchSize: 2, onProgress }),
        eraseUser: (by, _, onProgress) => by.eraseUser({ userId: 'eraseUser', ...each, onProgress }),
        importSessions: (by, records, onProgress) => by.importSessions(records, { batchSize: 5, onProgress }),
      };
      /** Stores four sessions of two events. @returns their records, and a function that counts what is deleted or imported. */
      const fill = async (userId: string) => {
        const appName = expect.getState().currentTestName!.slice(-100);
        for (const sessionId of ['s1', 's2', 's3', 's4']) {
          const session = await others.createSession({ appName, userId, sessionId });
          const events = ['a', 'b'].map((id) => createEvent({ id, timestamp: 1 }));
          await others.appendEvents({ session, events });
        }
        const maintenance = new SessionMaintenance(direct.em);
        const records: unknown[] = [];
        for await (const record of maintenance.exportSessions({ appName, userId })) records.push(record);
        const isImport = userId === 'importSessions';
        if (isImport) await maintenance.eraseUser({ appName, userId });
        const stored = async () => {
          const { sessions, events } = await maintenance.stats({ appName, userId });
          return isImport ? { sessions, events } : { sessions: 4 - sessions, events: 8 - events };
        };
        return { records, stored };
      };

      test.each(Object.keys(calls))('%s: the server goes away after two of them', async (userId) => {
        const { records, stored } = await fill(userId);
        const by = new SessionMaintenance((await open()).em, { retry: { forMs: 0 } });
        const error: unknown = await calls[userId]!(by, records, ({ done }) => {
          if (done['sessions'] === 2) proxy.refuse();
        }).catch((error: unknown) => error);
        expect(error).toMatchObject({
          code: 'ADK_DATABASE',
          outcome: 'partial',
          result: { done: { sessions: 2, events: 4 } },
        });
        // A trimmed session stays.
        expect(await stored()).toEqual({ sessions: userId === 'trim' ? 0 : 2, events: 4 });
        proxy.open();
        expect(await calls[userId]!(by, records, () => undefined)).toMatchObject({ done: { sessions: 2, events: 4 } });
      });

      test.each(Object.keys(calls))('%s: the answer to a commit is lost', async (userId) => {
        const { records, stored } = await fill(userId);
        const by = new SessionMaintenance((await open()).em);
        let lost = proxy.loseAnswer(COMMIT);
        const done = await calls[userId]!(by, records, ({ done }) => {
          if (done['sessions'] === 2) lost = lost.then(() => proxy.loseAnswer(COMMIT));
        });
        await lost;
        expect(done).toMatchObject({ done: { sessions: 4, events: 8 } });
        expect(await stored()).toEqual({ sessions: userId === 'trim' ? 0 : 4, events: 8 });
      });

      test('trim: the answer to a commit is lost, and the server goes away', async () => {
        await fill('trim');
        const by = new SessionMaintenance((await open()).em, { retry: { forMs: 0 } });
        let lost: Promise<void> | undefined;
        const error: unknown = await calls['trim']!(by, [], () => {
          lost ??= proxy.loseAnswer(COMMIT, async () => proxy.refuse());
        }).catch((error: unknown) => error);
        await lost;
        expect(error).toMatchObject({ outcome: 'unknown', result: { done: { sessions: 1, events: 2 } } });
        expect((error as Error).message).toContain('whether the one that failed is stored is not known');
      });
    });

    /** Expires the lease, and lets another holder take it. */
    async function expire({ sessionId }: { sessionId: string }): Promise<void> {
      await direct.em
        .getConnection()
        .execute('update adk_sessions set lease_expires = 1 where session_id = ?', [sessionId]);
      await new SessionLeases(direct.em).acquire(key, { holder: 'b' });
    }

    describe('O5 a connection whose transaction may be open is not used again', () => {
      test('a rollback is refused', async () => {
        const told: string[] = [];
        const service = new MikroOrmSessionService((await open()).em, {
          onError: (_error, { operation }) => told.push(operation),
        });
        const session = await service.createSession(key);
        await service.appendEvent({ session, event: eventOf('a') });
        const refused = proxy.answer(/rollback/, refusal);
        // The effects of the statements before the failing one must not be committed.
        await expect(service.updateState({ ...keyOf('missing'), set: { 'app:never': 1, a: 1 } })).rejects.toMatchObject(
          { code: 'ADK_SESSION_NOT_FOUND' },
        );
        await refused;
        await service.appendEvent({ session, event: eventOf('b') });
        expect(told).toContain('rollback');
        const stored = await readTables(direct.em, key.sessionId);
        expect(stored).toMatchObject({ ids: ['a', 'b'], seqs: [1, 2], lastSeq: 2 });
        expect(stored.state).not.toHaveProperty('app:never');
      });

      test('an append is stored already, and its rollback is refused', async () => {
        const service = new MikroOrmSessionService((await open()).em);
        const session = await service.createSession(key);
        await service.appendEvents({ session, events: [eventOf('a')] });
        const refused = statements.append([]).includes('begin') ? proxy.answer(/rollback/, refusal) : Promise.resolve();
        await service.appendEvents({ session, events: [eventOf('b'), eventOf('a')] });
        await refused;
        expect(await readTables(direct.em, key.sessionId)).toMatchObject({ seqs: [1, 2], lastSeq: 2 });
      });
    });

    describe('O4 an outage is waited out', () => {
      test('longer than ten attempts take', async () => {
        const service = new MikroOrmSessionService((await open()).em, { retry: { maxDelayMs: 2 } });
        const session = await service.createSession(key);
        proxy.refuse();
        const appended = service.appendEvent({ session, event: eventOf('a') });
        const before = proxy.attempts;
        while (proxy.attempts < before + 25) await new Promise(setImmediate);
        proxy.open();
        await appended;
        expect((await readTables(direct.em, key.sessionId)).ids).toEqual(['a']);
      });

      test('a later deadlock is retried like any other', async () => {
        const service = new MikroOrmSessionService((await open()).em, { retry: { maxDelayMs: 2 } });
        const session = await service.createSession(key);
        proxy.refuse();
        const appended = service.appendEvent({ session, event: eventOf('a') });
        const before = proxy.attempts;
        while (proxy.attempts < before + 25) await new Promise(setImmediate);
        const met = proxy.answer(appending, deadlock);
        proxy.open();
        await appended;
        await met;
        expect((await readTables(direct.em, key.sessionId)).ids).toEqual(['a']);
      });

      test('attempts and forMs bound it', async () => {
        for (const retry of [{ attempts: 3, baseDelayMs: 1 }, { forMs: 0 }]) {
          const service = new MikroOrmSessionService((await open()).em, { retry });
          await service.getSession(key);
          proxy.refuse();
          const before = proxy.attempts;
          await expect(service.getSession(key)).rejects.toMatchObject({ code: 'ADK_DATABASE' });
          expect(proxy.attempts - before).toBeLessThanOrEqual(retry.attempts ?? 1);
          proxy.open();
        }
      });
    });

    test('after all of it the handle of a session equals what is stored', async () => {
      const service = new MikroOrmSessionService((await open(2)).em, { timeoutMs: TIMEOUT_MS });
      const session: Session = await service.createSession(key);
      const faults = [
        () => proxy.freeze(),
        () => proxy.cut(),
        () => void proxy.loseAnswer(appending),
        () => void proxy.freezeAt(appending),
      ];
      const ids = upTo(16).map((n) => `event ${n}`);
      for (const [i, id] of ids.entries()) {
        faults[i % faults.length]!();
        await service.appendEvent({ session, event: eventOf(id, { last: id, [id]: i }) });
      }
      const stored = await readTables(direct.em, key.sessionId);
      expect(stored.ids).toEqual(ids);
      expect(stored.seqs).toEqual(upTo(ids.length));
      expect(session.events.map(({ id }) => id)).toEqual(ids);
      expect(stored.state).toMatchObject(session.state);
    });
  });
});
