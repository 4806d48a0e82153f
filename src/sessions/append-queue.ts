import type { Session } from '@google/adk';
import { setImmediate } from '../model/clock.js';
import { sessionIdentity, type SessionKey } from '../model/keys.js';
import type { AppendBatch, Dialect, DialectAppends, Sql } from '../database/dialects/dialect.js';
import { perTables, processWidePerTables } from '../database/sql/values.js';
import { appendBatch, appendsOf } from '../database/statements/events.js';
import { Deadline, type AttemptConnection } from '../database/calls/connection.js';
import type { Connections } from '../database/calls/connections.js';
import type { Database } from '../database/calls/database.js';
import { isOwn } from '../database/calls/public-error.js';
import type { Attempt, AttemptOptions } from '../database/calls/retry.js';
import type { StatementBuffer } from '../database/calls/sql.js';
import type { ObservedCall } from '../telemetry/telemetry.js';
import type { PendingEvent } from './pending-event.js';

export type NonEmpty<T> = readonly [T, ...T[]];

/** A call that appends events to a handle. */
export interface Append {
  readonly handle: Session;
  /** The session that the handle named when the call was made. */
  readonly key: SessionKey;
  readonly pending: readonly PendingEvent[];
  /** Whether it makes or answers a long-running call. */
  readonly concernsCalls: boolean;
  /** The call, if calls are observed. */
  readonly observed: ObservedCall | undefined;
  /** Ends the measurement of its wait for a turn. */
  readonly waited: (() => void) | undefined;
}

/** What writes the appends of one service. */
interface AppendWriter {
  /** Whether an append can be written in one batch with another one before it. */
  canJoin(first: Append, append: Append): boolean;
  /**
   * Writes appends to one session when their turn has come.
   *
   * @returns the errors of refused appends, by their places.
   * @throws if none could be written.
   */
  append(appends: NonEmpty<Append>): Promise<ReadonlyMap<number, unknown>>;
}

/** A write by another call or batch, which includes the one that waits. */
interface SharedWrite {
  readonly result: Promise<void>;
}

/** Ends a wait. @param shared if it is written with another one; otherwise its turn has come. */
type Proceed = (shared?: SharedWrite) => void;

/** A call that waits for its turn. */
interface QueuedCall {
  readonly append?: Append;
  /** The writer of the append. */
  readonly by?: AppendWriter;
  readonly proceed: Proceed;
}

/**
 * The most events, and characters of JSON, that are written together for several calls. A server refuses a packet that is too
 * large, and no call is acknowledged before all events are written. On MySQL and MariaDB each number of events is its own
 * statement, which a connection keeps prepared.
 */
const MOST_EVENTS = 64;
const MOST_LENGTH = 1_000_000;

/** Shared: another copy of this package may write to the same session. */
const linesOf = processWidePerTables('lines', () => new Map<string, QueuedCall[]>());

/**
 * Where the writes of a process wait for their turn (contract E9, O6). Writes to one session wait for each other in memory: if they
 * waited for the lock of its row, each would use a connection. Appends that wait for the same session are one batch, in the order of
 * the calls (contract A9).
 */
export class AppendQueue {
  /** All services on one ORM and schema share a queue. */
  static readonly of = perTables((database: Database) => new AppendQueue(database));

  /** The waiting calls, for each session to which a write is under way. */
  readonly #lines: Map<string, QueuedCall[]>;
  readonly #batches: BatchWriter;

  private constructor(database: Database) {
    this.#lines = linesOf(database);
    this.#batches = new BatchWriter(database);
  }

  /** Runs `work` after all earlier writes to the session, whether they succeed or fail. */
  async run<T>(key: SessionKey, work: () => Promise<T>): Promise<T> {
    const identity = sessionIdentity(key);
    const line = this.#lines.get(identity);
    if (line) await new Promise<void>((proceed) => line.push({ proceed: () => proceed() }));
    else this.#lines.set(identity, []);
    try {
      return await work();
    } finally {
      this.#next(identity);
    }
  }

  /** Writes an append after all earlier writes to the session, or in one batch with earlier appends. */
  async append(by: AppendWriter, append: Append): Promise<void> {
    const identity = sessionIdentity(append.key);
    let line = this.#lines.get(identity);
    if (line) {
      const calls = line;
      const written = await new Promise<SharedWrite | undefined>((proceed) => calls.push({ append, by, proceed }));
      if (written) return written.result;
    } else this.#lines.set(identity, (line = []));

    const others = line.length > 0 ? takeOthers(line, by, append) : [];
    append.waited?.();
    for (const { append } of others) append.waited?.();
    try {
      const written = by.append([append, ...others.map((other) => other.append)]);
      for (const [i, { proceed }] of others.entries())
        proceed({ result: written.then((failed) => refuse(failed, i + 1)) });
      const refused = await written;
      if (refused.size > 0) refuse(refused, 0);
    } finally {
      // Gives callers that append again at once the time to join the next batch.
      if (others.length > 0 || line.length > 0) setImmediate(() => this.#next(identity));
      else this.#next(identity);
    }
  }

  #next(identity: string): void {
    const next = this.#lines.get(identity)?.shift();
    if (next) next.proceed();
    // Otherwise the empty line would stay in memory.
    else this.#lines.delete(identity);
  }

  /** Writes the batch of a call whose turn has come: see `BatchWriter`. */
  write(database: Database, batch: AppendBatch, options: AttemptOptions): Promise<number | undefined> {
    return this.#batches.write(database, batch, options);
  }
}

/** Removes from a line the appends that can be written together with the first one. */
function takeOthers(line: QueuedCall[], by: AppendWriter, first: Append) {
  const others: { append: Append; proceed: QueuedCall['proceed'] }[] = [];
  let events = first.pending.length;
  let length = storedLength(first);
  for (const { append, by: writer, proceed } of line) {
    if (!append || writer !== by) break;
    events += append.pending.length;
    length += storedLength(append);
    if (events > MOST_EVENTS || length > MOST_LENGTH || !by.canJoin(first, append)) break;
    others.push({ append, proceed });
  }
  line.splice(0, others.length);
  return others;
}

/** A batch on its way to the database. */
interface SentBatch {
  readonly batch: AppendBatch;
  readonly attempt: Attempt;
  /** Undefined if a shared statement skipped it: it must be written alone, and then gets its own error. */
  result?: { readonly lastSeq: number | undefined } | { readonly error: unknown };
}

/**
 * Writes batches. Those of several sessions share a statement or a commit if the database can: the batch that gets a connection also
 * writes those that wait for one at that moment. A batch asks for a connection itself only if those already asking cannot write it,
 * too. A lone batch never waits, so no timer is needed.
 */
class BatchWriter {
  /** How the tables are appended to; changes when a connection shows that they are distributed. */
  #appends: DialectAppends;
  #dialect: Dialect;
  /** The batches that have asked for a connection and do not have it yet. */
  readonly #asking = new Set<SentBatch>();
  /** The batches that wait until one of those writes them, too, or until they must ask for a connection themselves. */
  readonly #waiting = new Map<SentBatch, Proceed>();

  constructor(database: Database) {
    this.#appends = appendsOf(database);
    this.#dialect = database.dialect;
  }

  /**
   * Writes a batch like `DialectAppends.write`, and retries failures that may pass. If it throws, nothing of the batch is stored,
   * unless `outcome` says otherwise.
   */
  write(database: Database, batch: AppendBatch, options: AttemptOptions): Promise<number | undefined> {
    if (database.isJoined) return database.transaction((sql) => appendBatch(sql, batch), options);
    // Batches with other settings would be written as somebody else.
    const mayShare = this.#appends.most > 1 && !database.connections.hasSettings;
    let isShared = mayShare && this.#appends.shares?.(batch) !== false;
    const attempted = async (attempt: Attempt): Promise<number | undefined> => {
      const own: SentBatch = { batch, attempt };
      const deadline = new Deadline(database.connections);
      const waited = database.observed?.waiting('connection');
      try {
        // The batches that have asked for a connection have room for this one.
        const hasRoom = isShared && this.#waiting.size < this.#room;
        if (isShared && !hasRoom) this.#asking.add(own);
        const written = hasRoom ? await this.#writtenByOther(own, deadline) : undefined;
        if (written) {
          deadline.hasConnection = true;
          waited?.();
          // A database in this process always answers, and a statement on it cannot be stopped.
          await (database.connections.orm.isInProcess ? written.result : deadline.within(written.result));
        } else await this.#writeWithWaiting(database.connections, deadline, own, { isShared, waited });
      } finally {
        this.#endAsking(own);
        deadline.clear();
        // After a failed statement each batch is tried alone, since one of them may end the connection each time. After a failed
        // transaction that is not needed: each batch had a savepoint.
        if (this.#appends.skipsLocked) isShared = false;
      }
      const { result } = own;
      if (!result) return attempted(Object.assign(attempt, { isSent: false }));
      if ('error' in result) throw result.error;
      return result.lastSeq;
    };
    return database.tried(attempted, options);
  }

  /** Writes a batch on a connection of its own, with those that wait for one if it is shared. */
  #writeWithWaiting(
    connections: Connections,
    deadline: Deadline,
    own: SentBatch,
    { isShared, waited }: { isShared: boolean; waited: (() => void) | undefined },
  ): Promise<void> {
    return connections.use(deadline, (connection) => {
      waited?.();
      if (connections.dialectOn(connection.driver) !== this.#dialect) {
        const sql = connections.sql(connection.driver);
        this.#appends = appendsOf(sql);
        this.#dialect = sql.dialect;
      }
      const mayShare = isShared && this.#waiting.size > 0;
      const sent: NonEmpty<SentBatch> = mayShare ? this.#withWaiting(own) : [own];
      const result = this.#write(connections, connection, sent);
      for (const other of sent) this.#proceed(other, { result });
      this.#endAsking(own);
      return result;
    });
  }

  /** @returns undefined once the batch must ask for a connection itself. */
  async #writtenByOther(own: SentBatch, deadline: Deadline): Promise<SharedWrite | undefined> {
    const turn = new Promise<SharedWrite | undefined>((proceed) => this.#waiting.set(own, proceed));
    try {
      return await deadline.within(turn);
    } catch (error) {
      if (this.#waiting.delete(own)) throw error;
      // Another batch may have begun to write this one at that moment.
      return turn;
    }
  }

  /** How many batches may wait for those that have asked for a connection. */
  get #room(): number {
    return this.#asking.size * (this.#appends.most - 1);
  }

  /** Notes that a batch got the connection that it had asked for, or failed to get it. */
  #endAsking(asking: SentBatch): void {
    if (!this.#asking.delete(asking)) return;
    for (const waiting of this.#waiting.keys()) {
      if (this.#waiting.size <= this.#room) break;
      this.#letAsk(waiting);
    }
  }

  #letAsk(waiting: SentBatch): void {
    this.#asking.add(waiting);
    this.#proceed(waiting);
  }

  #proceed(waiting: SentBatch, written?: SharedWrite): void {
    const proceed = this.#waiting.get(waiting);
    this.#waiting.delete(waiting);
    proceed?.(written);
  }

  /** @returns a batch and those waiting that can be written together with it. */
  #withWaiting(first: SentBatch): NonEmpty<SentBatch> {
    const sent: [SentBatch, ...SentBatch[]] = [first];
    let length = lengthOf(first.batch);
    let left: SentBatch | undefined;
    for (const waiting of this.#waiting.keys()) {
      if (this.#appends.areTogether?.(first.batch, waiting.batch) === false) {
        left ??= waiting;
        continue;
      }
      length += lengthOf(waiting.batch);
      if (sent.length === this.#appends.most || length > MOST_LENGTH) break;
      sent.push(waiting);
    }
    // Those that ask may all be unable to write it.
    if (left) this.#letAsk(left);
    return sent;
  }

  /** Writes batches in one statement or transaction. @throws an error that would have failed each of them. */
  async #write(connections: Connections, connection: AttemptConnection, sent: NonEmpty<SentBatch>): Promise<void> {
    const [first] = sent;
    const appends = this.#appends;
    const isAlone = sent.length === 1;
    const batches = isAlone ? [first.batch] : sent.map(({ batch }) => batch);
    const write = (sql: Sql) => appends.write(sql, batches);
    try {
      let lastSeqs: readonly (number | undefined)[];
      if (appends.isStatement?.(first.batch)) {
        noteSent(sent);
        lastSeqs = await connection.run(write);
      } else {
        lastSeqs = await connection.transaction(write, { beforeCommit: () => noteSent(sent) });
      }
      for (const [i, each] of sent.entries()) {
        const lastSeq = lastSeqs[i];
        // Those that are together may have skipped this one.
        if (lastSeq !== undefined || isAlone || !appends.skipsLocked) each.result = { lastSeq };
      }
    } catch (error) {
      if (isAlone || isOwn(error) || connections.failsAll(error)) throw error;
      // One of them failed, so none is written.
      if (!appends.skipsLocked) await this.#writeEach(connection, sent);
    }
  }

  /**
   * Writes batches in one transaction, each in a savepoint, so that only a batch that fails is undone. This takes two more
   * statements for each batch, so it is not done on the first attempt, which hardly ever fails.
   */
  async #writeEach(connection: AttemptConnection, sent: readonly SentBatch[]): Promise<void> {
    const write = async (sql: Sql, buffer: StatementBuffer) => {
      for (const each of sent) {
        try {
          await buffer.savepoint(async () => {
            const [lastSeq] = await this.#appends.write(sql, [each.batch]);
            each.result = { lastSeq };
          });
        } catch (error) {
          buffer.resume(error);
          each.result = { error };
        }
      }
    };
    await connection.transaction(write, { beforeCommit: () => noteSent(sent) });
  }
}

/** Notes that the statement which makes their writes durable was sent. */
function noteSent(sent: readonly SentBatch[]): void {
  for (const { attempt } of sent) attempt.isSent = true;
}

function storedLength({ pending }: Append): number {
  return pending.reduce((sum, { stored }) => sum + stored.json.length, 0);
}

function lengthOf({ events, state }: AppendBatch): number {
  return jsonLength(events) + jsonLength(state.session);
}

function jsonLength(texts: readonly { readonly json: string }[]): number {
  return texts.reduce((sum, { json }) => sum + json.length, 0);
}

/** @throws the error of the append at this place, if it is refused. */
function refuse(refused: ReadonlyMap<number, unknown>, place: number): void {
  if (refused.has(place)) throw refused.get(place);
}
