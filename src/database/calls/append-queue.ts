import { setImmediate } from 'node:timers/promises';
import { sessionIdentity, type SessionKey } from '../../model/keys.js';
import type { AppendBatch, Dialect, DialectAppends, StoredEvent } from '../dialects/dialect.js';
import type { Tables } from '../sql/tables.js';
import { appendBatch, appendsOf } from '../statements/events.js';
import { Deadline, type AttemptConnection } from './connection.js';
import type { Database } from './database.js';
import { isOwn } from './public-error.js';
import { Tries, type Attempt, type AttemptOptions } from './retry.js';

type NonEmpty<T> = readonly [T, ...T[]];

/** A call that appends to a session. */
interface QueuedAppend {
  readonly key: SessionKey;
  readonly pending: readonly { readonly stored: StoredEvent }[];
  /** Its turn has come. */
  readonly waited: (() => void) | undefined;
}

/** What writes the appends of one service. */
interface AppendWriter<Append> {
  /** Whether an append can be written in one batch with another one before it. */
  canJoin(first: Append, append: Append): boolean;
  /**
   * Writes appends to one session, whose turn has come.
   *
   * @returns by their places the errors of those that are refused.
   * @throws the error of all of them.
   */
  append(appends: NonEmpty<Append>): Promise<ReadonlyMap<number, unknown>>;
}

/** A call that waits for its turn. */
interface Waiting {
  readonly append?: QueuedAppend;
  /** What writes the append. */
  readonly by?: object;
  /** @param written its result, if another append has written it; otherwise its turn has come. */
  readonly proceed: (written?: { readonly result: Promise<void> }) => void;
}

/** A batch that waits for a connection, or for another batch to include it. */
interface Member {
  readonly batch: AppendBatch;
  readonly attempt: Attempt;
  /** Whether it has asked for a connection and does not have it yet. */
  isAsking: boolean;
  /** Ends its wait: another batch writes it, or it must ask for a connection itself. */
  proceed?: () => void;
  /** Done when the batch that includes it has been written. */
  written?: Promise<void>;
  /** Undefined if it was left out: it has to be written alone, and then gets its own error. */
  result?: { readonly lastSeq: number | undefined } | { readonly error: unknown };
}

/** How an attempt writes a batch. */
interface How {
  /** Whether with others. */
  isShared: boolean;
  signal: AbortSignal | undefined;
}

/**
 * The most events, and characters of JSON, that are written together for several calls: a server refuses a packet that is too
 * large, and nothing is acknowledged before all of it is written. On MySQL and MariaDB each number of events is a statement of its
 * own, which a connection keeps prepared.
 */
const MOST_EVENTS = 64;
const MOST_LENGTH = 1_000_000;

/**
 * Where the writes of a process wait (contract E9, O6). Those to one session wait for each other in memory: waiting for the lock of
 * its row, each would use a connection. Appends that wait for the same session are one batch, in the order of the calls (contract A9).
 *
 * Batches of several sessions share a statement or a commit if the database can. The batch that gets a
 * connection also writes those that wait for one at that moment. A batch asks for a connection itself only if those already asking
 * cannot write it, too. A lone batch never waits, so no timer is needed.
 */
export class AppendQueue {
  static readonly #all = new WeakMap<Tables, AppendQueue>();

  /** How the tables were appended to last, and the dialect's: the first connection shows whether they are distributed. */
  #appends: DialectAppends;
  #dialect: Dialect;
  /** The calls that wait, of each session to which a write is under way. */
  readonly #lines = new Map<string, Waiting[]>();
  /** The batches that another one may write with its own. */
  readonly #waiting = new Set<Member>();
  /** How many batches have asked for a connection, and wait for it. */
  #asking = 0;

  private constructor(database: Database) {
    this.#appends = appendsOf(database);
    this.#dialect = database.dialect;
  }

  /** That of all services on one ORM and schema. */
  static of(database: Database): AppendQueue {
    const queue = AppendQueue.#all.get(database.tables) ?? new AppendQueue(database);
    AppendQueue.#all.set(database.tables, queue);
    return queue;
  }

  /** Runs `work` after the writes to the session that were asked for before, whether they succeed or fail. */
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

  /** Writes an append after the writes to the session that were asked for before, or together with those of them that are appends. */
  async append<Append extends QueuedAppend>(by: AppendWriter<Append>, append: Append): Promise<void> {
    const identity = sessionIdentity(append.key);
    let line = this.#lines.get(identity);
    if (line) {
      const calls = line;
      const written = await new Promise<{ readonly result: Promise<void> } | undefined>((proceed) =>
        calls.push({ append, by, proceed }),
      );
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
      // Callers that append again at once are to find their place before the next batch begins.
      if (others.length > 0 || line.length > 0) void setImmediate().then(() => this.#next(identity));
      else this.#next(identity);
    }
  }

  #next(identity: string): void {
    const next = this.#lines.get(identity)?.shift();
    if (next) next.proceed();
    // The entry of a session that nobody waits for would stay in memory.
    else this.#lines.delete(identity);
  }

  /**
   * Writes a batch as `DialectAppends.write` does, and again after failures that may pass. Nothing of it is stored when it throws,
   * unless `outcome` says otherwise.
   */
  async write(database: Database, batch: AppendBatch, options: AttemptOptions): Promise<number | undefined> {
    if (database.isJoined) return database.transaction((sql) => appendBatch(sql, batch), options);
    let isShared = this.#appends.shares(batch);
    let tries: Tries | undefined;
    for (;;) {
      const attempt = { isSent: false, waited: database.telemetry?.current?.waiting('lock') };
      const member: Member = { batch, attempt, isAsking: false };
      try {
        const preparing = database.connections.prepare(false);
        if (preparing) await preparing;
        await this.#attempt(database, member, { isShared, signal: options.signal });
        const { result } = member;
        if (result && 'error' in result) throw result.error;
        if (result) return result.lastSeq;
      } catch (error) {
        tries ??= new Tries(database.retry, options);
        await tries.failed(error, attempt);
      }
      // A statement that has failed is tried alone: one of several may end the connection each time. In a transaction that has failed
      // each has had a savepoint.
      if (this.#appends.isStatement(batch)) isShared = false;
    }
  }

  /** Writes a batch, with others that wait for a connection if it is shared, or lets one of them write it. */
  async #attempt(database: Database, member: Member, how: How): Promise<void> {
    const { connections, telemetry } = database;
    const { isShared, signal } = how;
    const deadline = new Deadline({ timeoutMs: connections.timeoutMs, signal });
    const waited = telemetry?.current?.waiting('connection');
    try {
      // Those that have asked for a connection can write it with theirs.
      if (isShared && this.#waiting.size < this.#asking * (this.#appends.most - 1)) {
        await this.#untilTurn(member, deadline);
        // What runs in this process always ends, and could not be stopped.
        if (member.written) {
          waited?.();
          await (connections.orm.isInProcess ? member.written : deadline.within(member.written));
          return;
        }
      } else if (isShared) {
        member.isAsking = true;
        this.#asking++;
      }
      await connections.use(deadline, (connection, prefix) => {
        waited?.();
        const sql = connections.sql(connection.driver, { isInTransaction: true });
        if (sql.dialect !== this.#dialect) {
          this.#appends = appendsOf(sql);
          this.#dialect = sql.dialect;
        }
        const mayShare = isShared && this.#appends.most > 1 && this.#waiting.size > 0;
        const members: NonEmpty<Member> = mayShare ? this.#takeAlong(member) : [member];
        this.#asked(member);
        const written = this.#write(database, connection, prefix, members);
        for (const other of members) {
          if (other === member) continue;
          other.written = written;
          other.proceed?.();
        }
        return written;
      });
    } finally {
      this.#asked(member);
      deadline.clear();
    }
  }

  async #untilTurn(member: Member, deadline: Deadline): Promise<void> {
    const turn = new Promise<void>((proceed) => {
      member.proceed = proceed;
      this.#waiting.add(member);
    });
    try {
      await deadline.within(turn);
    } catch (error) {
      this.#waiting.delete(member);
      // Another batch may have begun to write it just then.
      if (!member.written) throw error;
    }
  }

  /** It has the connection that it has asked for, or has failed to get it. */
  #asked(member: Member): void {
    if (!member.isAsking) return;
    member.isAsking = false;
    this.#asking--;
    for (const waiting of this.#waiting) {
      if (this.#waiting.size <= this.#asking * (this.#appends.most - 1)) break;
      this.#waiting.delete(waiting);
      waiting.isAsking = true;
      this.#asking++;
      waiting.proceed?.();
    }
  }

  #takeAlong(first: Member): NonEmpty<Member> {
    const members: [Member, ...Member[]] = [first];
    let length = lengthOf(first.batch);
    for (const waiting of this.#waiting) {
      length += lengthOf(waiting.batch);
      if (members.length === this.#appends.most || length > MOST_LENGTH) break;
      this.#waiting.delete(waiting);
      members.push(waiting);
    }
    return members;
  }

  /** Writes batches in one statement or transaction. @throws what would have failed each of them. */
  async #write(
    database: Database,
    connection: AttemptConnection,
    prefix: string,
    members: NonEmpty<Member>,
  ): Promise<void> {
    const { connections } = database;
    const [first] = members;
    const appends = this.#appends;
    const isAlone = members.length === 1;
    const isStatement = appends.isStatement(first.batch);
    const sql = connections.sql(connection.driver, isStatement ? { prefix } : { isInTransaction: true });
    if (!isStatement) await connection.begin({ prefix });
    try {
      if (isStatement) noteSent(members);
      const lastSeqs = await appends.write(sql, isAlone ? [first.batch] : members.map(({ batch }) => batch));
      if (!isStatement) {
        noteSent(members);
        await connection.commit();
      }
      for (const [i, member] of members.entries()) {
        const lastSeq = lastSeqs[i];
        // A statement of several may have skipped it.
        if (lastSeq !== undefined || isAlone || !isStatement) member.result = { lastSeq };
      }
    } catch (error) {
      if (!isStatement) await connection.rollback(error, database.rollbackFailed);
      if (isAlone || isOwn(error) || connections.failsAll(error)) throw error;
      // Nothing is written, because of one of them.
      if (!isStatement) await this.#writeEach(database, connection, members);
    }
  }

  /**
   * Writes batches in one transaction, each in a savepoint, so that only the one that fails is undone: two statements for each are too
   * much for the first try, which hardly ever fails.
   */
  async #writeEach(
    { connections, rollbackFailed }: Database,
    connection: AttemptConnection,
    members: readonly Member[],
  ): Promise<void> {
    const sql = connections.sql(connection.driver, { isInTransaction: true });
    const write = async () => {
      for (const member of members) {
        await connection.savepoint(
          async () => {
            const [lastSeq] = await this.#appends.write(sql, [member.batch]);
            member.result = { lastSeq };
          },
          (error) => {
            member.result = { error };
          },
        );
      }
    };
    await connection.transaction(write, { beforeCommit: () => noteSent(members), rollbackFailed });
  }
}

/** The statement is sent that makes their writes last. */
function noteSent(members: readonly Member[]): void {
  for (const { attempt } of members) attempt.isSent = true;
}

/** Takes the appends out of a line that can be written together with the one whose turn it is. */
function takeOthers<Append extends QueuedAppend>(line: Waiting[], by: AppendWriter<Append>, first: Append) {
  const others: { append: Append; proceed: Waiting['proceed'] }[] = [];
  let events = first.pending.length;
  let length = storedLength(first);
  for (const { append, by: writer, proceed } of line) {
    if (!append || writer !== by) break;
    events += append.pending.length;
    length += storedLength(append);
    // Of the same writer, so it is of its type.
    const other = append as Append;
    if (events > MOST_EVENTS || length > MOST_LENGTH || !by.canJoin(first, other)) break;
    others.push({ append: other, proceed });
  }
  line.splice(0, others.length);
  return others;
}

function storedLength({ pending }: QueuedAppend): number {
  return pending.reduce((sum, { stored }) => sum + stored.json.length, 0);
}

function lengthOf({ events, state }: AppendBatch): number {
  return jsonLength(events) + jsonLength(state.session);
}

function jsonLength(texts: readonly { readonly json: string }[]): number {
  return texts.reduce((sum, { json }) => sum + json.length, 0);
}

/** @throws the error of the append at a place, if it is refused. */
function refuse(refused: ReadonlyMap<number, unknown>, place: number): void {
  if (refused.has(place)) throw refused.get(place);
}
