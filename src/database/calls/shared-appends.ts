import type { AppendBatch, AppendsTogether } from '../dialects/dialect.js';
import type { OrmConnection } from '../orm/orm-connection.js';
import type { Sql } from '../sql/sql.js';
import type { Deadline } from './connection.js';

/** An append that is to be written with others or alone. */
export interface SharingAppend {
  readonly batch: AppendBatch;
  /** Writes it by a statement of its own. */
  readonly alone: (sql: Sql) => Promise<number | undefined>;
  /** Called before the statement is sent that it shares. */
  readonly sent: () => void;
}

/** By append the number of its last event; an append that the statement has left out has none. */
type Written = ReadonlyMap<SharingAppend, number>;

/** An append that waits until another one takes it along, or its turn has come to ask for a connection. */
interface Waiting {
  readonly append: SharingAppend;
  readonly proceed: () => void;
  /** By the statement that takes it along. */
  written?: Promise<Written>;
}

/** So many appends, and characters of JSON, share a statement at most: none of them is acknowledged before all are written. */
const MAX_APPENDS = 32;
const MAX_LENGTH = 1_000_000;

/**
 * Lets appends to different sessions that wait for a connection share a statement: one round trip and one commit for all.
 * Whoever gets a connection takes along those that wait at that moment. An append asks for a connection itself unless those
 * that have asked before can take it along, so that one that is alone waits for nobody.
 */
export class SharedAppends {
  static readonly #all = new WeakMap<OrmConnection, WeakMap<AppendsTogether, SharedAppends>>();

  readonly #together: AppendsTogether;
  readonly #waiting = new Set<Waiting>();
  /** How many have asked for a connection, and wait for it. */
  #asking = 0;

  private constructor(together: AppendsTogether) {
    this.#together = together;
  }

  /** Those on one ORM and schema. */
  static of(orm: OrmConnection, together: AppendsTogether): SharedAppends {
    const all = SharedAppends.#all.get(orm) ?? new WeakMap<AppendsTogether, SharedAppends>();
    SharedAppends.#all.set(orm, all);
    const shared = all.get(together) ?? new SharedAppends(together);
    all.set(together, shared);
    return shared;
  }

  /**
   * @param isRefused whether an error says that nothing is written, because of one of those that share the statement.
   * @param onConnection waits for a connection within the time of `deadline`.
   * @returns undefined when the append was left out: it has to be written alone, and then gets its own error.
   * @throws what the wait and the statement throw.
   */
  async write(
    append: SharingAppend,
    deadline: Deadline,
    isRefused: (error: unknown) => boolean,
    onConnection: <T>(work: (sql: Sql) => Promise<T>) => Promise<T>,
  ): Promise<{ lastSeq: number | undefined } | undefined> {
    if (this.#canTakeAlong(this.#waiting.size + 1)) {
      const written = await this.#join(append, deadline);
      if (written) return resultOf(append, written);
    } else this.#asking++;

    let isAsking = true;
    const asked = () => {
      if (isAsking) this.#asked();
      isAsking = false;
    };
    try {
      return await onConnection(async (sql) => {
        const others = this.#takeAlong(append);
        asked();
        if (others.length === 0) return { lastSeq: await append.alone(sql) };
        const written = this.#writeTogether(sql, [append, ...others.map((other) => other.append)], isRefused);
        for (const other of others) {
          other.written = written;
          other.proceed();
        }
        return resultOf(append, await written);
      });
    } finally {
      asked();
    }
  }

  /** @returns undefined when its turn has come to ask for a connection. */
  async #join(append: SharingAppend, deadline: Deadline): Promise<Written | undefined> {
    let waiting: Waiting | undefined;
    const turn = new Promise<void>((proceed) => this.#waiting.add((waiting = { append, proceed })));
    try {
      await deadline.within(turn);
    } catch (error) {
      // It may have been taken along just then.
      if (waiting?.written) return waiting.written;
      const isItsTurn = waiting && !this.#waiting.delete(waiting);
      if (isItsTurn) this.#asked();
      throw error;
    }
    return waiting?.written && deadline.within(waiting.written);
  }

  /** Whether those that have asked for a connection can take so many along. */
  #canTakeAlong(count: number): boolean {
    return count <= this.#asking * (MAX_APPENDS - 1);
  }

  /** One that has asked for a connection has it, or has failed to get it. */
  #asked(): void {
    this.#asking--;
    for (const waiting of this.#waiting) {
      if (this.#canTakeAlong(this.#waiting.size)) break;
      this.#waiting.delete(waiting);
      this.#asking++;
      waiting.proceed();
    }
  }

  #takeAlong(first: SharingAppend): Waiting[] {
    const taken: Waiting[] = [];
    let length = lengthOf(first);
    for (const waiting of this.#waiting) {
      length += lengthOf(waiting.append);
      if (taken.length + 1 === MAX_APPENDS || length > MAX_LENGTH) break;
      this.#waiting.delete(waiting);
      taken.push(waiting);
    }
    return taken;
  }

  async #writeTogether(
    sql: Sql,
    appends: readonly SharingAppend[],
    isRefused: (error: unknown) => boolean,
  ): Promise<Written> {
    const written = new Map<SharingAppend, number>();
    for (const { sent } of appends) sent();
    try {
      const batches = appends.map(({ batch }) => batch);
      const lastSeqs = await this.#together.write(sql, batches);
      for (const [i, append] of appends.entries()) {
        const lastSeq = lastSeqs[i];
        if (lastSeq !== undefined) written.set(append, lastSeq);
      }
    } catch (error) {
      if (!isRefused(error)) throw error;
    }
    return written;
  }
}

function resultOf(append: SharingAppend, written: Written): { lastSeq: number } | undefined {
  const lastSeq = written.get(append);
  return lastSeq === undefined ? undefined : { lastSeq };
}

function lengthOf({ batch }: SharingAppend): number {
  const jsons = [...batch.events, ...batch.state.session];
  return jsons.reduce((sum, { json }) => sum + json.length, 0);
}
