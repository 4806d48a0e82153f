import { inspect } from 'node:util';
import { createEvent, type BaseSessionService, type CreateEventParams, type Event, type Session } from '@google/adk';
import type { EntityManager } from '@mikro-orm/core';
import type { SqlEntityManager } from '@mikro-orm/postgresql';
import { setTimeout } from 'node:timers/promises';
import { KeyNeeded, type Codec, type CodecContext } from '../../src/codecs/index.js';
import { clock } from '../../src/leases/clock.js';
import type { Driver } from '../../src/database/drivers/driver.js';
import { ormConnectionOf, setOrmConnection } from '../../src/database/orm/orm-connection.js';
import type { OrmConnection } from '../../src/database/orm/reserved-connection.js';
import { AdkMikroOrmError } from '../../src/index.js';
import type { OwnHarness, OwnStore } from '../support/harnesses/harness.js';
import { isCheck } from '../support/harnesses/statement-log.js';

export type Content = NonNullable<Event['content']>;
export type Part = NonNullable<Content['parts']>[number];

/** So long that it is not renewed while a file runs: other tests would count the renewals among their statements. */
export const LONG_LEASE = { ttlMs: 600_000 };

/** A codec that has its key only after a call has waited for it, as for a KMS, and keeps it for that call alone. */
export function late(codec: Codec, key: () => Promise<unknown>): Codec {
  const known = new WeakSet<object>();
  const need = ({ call }: CodecContext) => {
    if (!known.has(call)) throw new KeyNeeded(key().then(() => known.add(call)));
  };
  return {
    ...codec,
    encode: (data, context) => {
      need(context);
      return codec.encode(data, context);
    },
    decode: (encoded, context, maxBytes) => {
      need(context);
      return codec.decode(encoded, context, maxBytes);
    },
  };
}

/** A codec that turns bytes around. */
export const reversing: Codec = {
  name: 'reversed',
  encode: (data) => ({ data: Uint8Array.from(data).reverse() }),
  decode: ({ data }) => Uint8Array.from(data).reverse(),
};

export { remember } from '../../packages/session-contract/src/checks.js';
export { TABLES } from '../support/harnesses/tables.js';

/** Gives `work` an ORM whose account has these rights on the tables, and no others. */
export async function withAccount(
  server: NonNullable<OwnHarness['server']>,
  rights: string,
  store: OwnStore,
  work: (account: Pick<OwnStore, 'orm'>) => Promise<void>,
): Promise<void> {
  const url = new URL(String(store.orm.config.get('clientUrl')));
  const database = url.pathname.slice(1);
  const [name, password] = [`account_${database.slice(-10)}`, 'secret'];
  const { create, drop } = server.account({ name, password, database, rights });
  for (const statement of create) await store.query(statement);
  try {
    Object.assign(url, { username: name, password });
    const orm = await store.connect({ clientUrl: url.href });
    await work({ orm });
    await orm.close(true);
  } finally {
    for (const statement of drop) await store.query(statement);
  }
}

/** JSON of as many objects, one in the other. */
export const nestedText = (levels: number) => '{"v":'.repeat(levels - 1) + '{}' + '}'.repeat(levels - 1);

/** As many objects, one in the other. */
export function nested(levels: number): object {
  let value = {};
  for (let n = 1; n < levels; n++) value = { v: value };
  return value;
}

/** What JSON makes of a value. */
export function plain<T>(value: T): T {
  return JSON.parse(JSON.stringify(value));
}

export const eventOf = (params: CreateEventParams = {}) => createEvent({ author: 'agent', ...params });

/** An event that says one word. */
export const saying = (text: string, params: CreateEventParams = {}) =>
  eventOf({ ...params, content: { role: 'model', parts: [{ text }] } });

export const textOf = (event: Event) => event.content?.parts?.[0]?.text;

export const textsOf = ({ events }: { events: Event[] }) => events.map(textOf);

export const idsOf = ({ events }: { events: Event[] }) => events.map(({ id }) => id);

/** 0, 1, … n - 1. */
export const range = (n: number) => Array.from({ length: n }, (_, i) => i);

/** Appends one event after the other, each saying its number and later than the one before. */
export async function count(service: BaseSessionService, session: Session, n: number): Promise<Event[]> {
  const events = range(n).map((i) => saying(String(i), { timestamp: i + 1 }));
  for (const event of events) await service.appendEvent({ session, event });
  return events;
}

/** What a promise rejects with. */
export async function errorOf(promise: Promise<unknown>): Promise<Error> {
  const outcome = await promise.then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  );
  const error = 'error' in outcome ? outcome.error : undefined;
  if (!(error instanceof Error)) throw new Error(`It did not fail: ${inspect(outcome)}`);
  return error;
}

/** Expects an error of this package. */
export async function expectCode(promise: Promise<unknown>, code: string, message?: string | RegExp): Promise<void> {
  const error = await errorOf(promise);
  expect(error).toMatchObject({ code });
  expect(error).toBeInstanceOf(AdkMikroOrmError);
  if (message !== undefined) expect(error.message).toMatch(message);
}

/** Whether a statement takes a session's lock. */
export const takesLock = (text: string): boolean => text.includes('last_seq = last');

/** Waits until something is so, asking again and again; long enough for a machine that has much else to do. */
export async function until(
  isSo: () => boolean | Promise<boolean>,
  intervalMs = 0,
  patienceMs = 120_000,
): Promise<void> {
  const deadline = Date.now() + patienceMs;
  while (!(await isSo())) {
    if (Date.now() > deadline) throw new Error('It never came about');
    await setTimeout(intervalMs);
  }
}

/**
 * Has a transaction meet another one in a deadlock, in which the server gives up the first, since it has written less.
 *
 * @param em of another ORM; a fork that was made outside, since inside MikroORM forks the transaction.
 */
export async function deadlock(
  { query }: Pick<OwnStore, 'query'>,
  tx: EntityManager,
  em: EntityManager,
  beside?: () => Promise<void>,
) {
  // Not on the connection itself, whose errors MikroORM does not convert.
  const write = (id: number, by: EntityManager) =>
    (by as SqlEntityManager).execute('update host_notes set text = ? where id = ?', ['x', id]);
  await query("insert into host_notes (id, text) values (1, ''), (2, '')", [], em);
  await write(1, tx);
  await em.transactional(async (other) => {
    const rows = range(200).map((n) => `(${1000 + n}, '')`);
    await query(`insert into host_notes (id, text) values ${rows.join()}`, [], other);
    await write(2, other);
    const blocked = write(1, other);
    await Promise.all([write(2, tx), beside?.()]).finally(() => blocked);
  });
}

/** An `EntityManager` whose transactions, of forks that are made of it, call a function after their commit. */
export function afterCommit(em: EntityManager, called: () => void): EntityManager {
  const own = em.fork();
  own.fork = (options) => {
    const fork = em.fork(options);
    const transactional = fork.transactional.bind(fork);
    fork.transactional = async (work, of) => {
      const result = await transactional(work, of);
      called();
      return result;
    };
    return fork;
  };
  return own;
}

interface Timer {
  at: number;
  everyMs?: number;
  readonly action: () => void;
}

/** The clock of leases: it moves only when the test advances it. The database has its own. */
export class LeaseClock {
  now = 0;
  #timers: Timer[] = [];

  /** Runs a test with the clock instead of the process's. */
  static async with(test: (time: LeaseClock) => Promise<void>): Promise<void> {
    const time = new LeaseClock();
    const replaced = [
      jest.spyOn(clock, 'now').mockImplementation(() => time.now),
      jest.spyOn(clock, 'after').mockImplementation((ms, action) => time.#start({ at: time.now + ms, action })),
      jest
        .spyOn(clock, 'every')
        .mockImplementation((ms, action) => time.#start({ at: time.now + ms, everyMs: ms, action })),
    ];
    try {
      await test(time);
    } finally {
      for (const spy of replaced) spy.mockRestore();
    }
  }

  /** When each timer fires next. */
  get due(): number[] {
    return this.#timers.map(({ at }) => at);
  }

  /** Fires all timers that are due in the next n ms, one after the other. */
  advance(ms: number): void {
    const end = this.now + ms;
    for (;;) {
      const [first] = this.#timers.filter(({ at }) => at <= end).sort((a, b) => a.at - b.at);
      if (!first) break;
      this.now = first.at;
      if (first.everyMs === undefined) this.#timers = this.#timers.filter((timer) => timer !== first);
      else first.at += first.everyMs;
      first.action();
    }
    this.now = end;
  }

  #start(timer: Timer): () => void {
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }
}

/** The point at which an `EntityManager` must fail. */
export interface Faults {
  /** What happens before a statement is run. */
  before?: (text: string) => Promise<void>;
  /** Fails instead of running this statement. */
  statement?: (text: string) => boolean;
  /** Fails once after running this statement outside a transaction: the server did it, its answer is lost. */
  answer?: (text: string) => boolean;
  /** Fails once after a commit. */
  commit?: boolean;
  error?: () => Error;
}

const errorOfFaults = ({ error }: Faults) => error?.() ?? new Error('failed on demand');

/** An `EntityManager` whose statements fail on demand. */
export function faulty(em: EntityManager, faults: Faults): EntityManager {
  const own = em.fork({ keepTransactionContext: true });
  // Another object for MikroORM's connection: only statements of this `EntityManager` fail.
  const target = em.getConnection();
  const connection = new Proxy(target, {
    get(_, name) {
      const member: unknown = Reflect.get(target, name);
      return typeof member === 'function' ? member.bind(target) : member;
    },
  });
  withConnection(own, connection, faults);
  const orm = ormConnectionOf(em);
  // The same object for the same connection, as `Driver` promises: its settings are checked once.
  const joined = new WeakMap<Driver, Driver>();
  const failing: OrmConnection = {
    get isInProcess() {
      return orm.isInProcess;
    },
    get mustWaitForLocks() {
      return orm.mustWaitForLocks;
    },
    open: () => orm.open(),
    async reserve() {
      const reserved = await orm.reserve();
      return { ...reserved, driver: faultyDriver(reserved.driver, faults, false) };
    },
    async ofTransaction(transaction) {
      const driver = await orm.ofTransaction(transaction);
      const made = joined.get(driver) ?? faultyDriver(driver, faults, true);
      joined.set(driver, made);
      return made;
    },
  };
  setOrmConnection(connection, failing);
  return own;
}

/** Also for the forks, which commit the savepoints of a host's transaction. */
function withConnection(em: EntityManager, connection: ReturnType<EntityManager['getConnection']>, faults: Faults) {
  em.getConnection = () => connection;
  const fork = em.fork.bind(em);
  const commit = em.commit.bind(em);
  em.fork = (options) => {
    const forked = fork(options);
    withConnection(forked, connection, faults);
    return forked;
  };
  em.commit = async () => {
    await commit();
    failAfterCommit(faults);
  };
}

function failAfterCommit(faults: Faults): void {
  if (!faults.commit) return;
  delete faults.answer;
  delete faults.commit;
  throw errorOfFaults(faults);
}

function faultyDriver(driver: Driver, faults: Faults, isBegun: boolean): Driver {
  return {
    reportsChangedRows: driver.reportsChangedRows,
    async send(statement, context) {
      const { text } = statement;
      // By the first call on each connection that is made here; no test is about them.
      if (isCheck(text)) return driver.send(statement, context);
      await faults.before?.(text);
      if (faults.statement?.(text)) throw errorOfFaults(faults);
      const answer = await driver.send(statement, context);
      if (text === 'begin') isBegun = true;
      if (text === 'commit') failAfterCommit(faults);
      if (!isBegun && faults.answer?.(text)) {
        delete faults.answer;
        delete faults.commit;
        throw errorOfFaults(faults);
      }
      return answer;
    },
  };
}
