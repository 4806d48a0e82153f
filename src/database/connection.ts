import { command, reserveConnection, type ReservedConnection, type SqlEntityManager } from './mikro-orm.js';

/** How long an attempt may still take when its signal has fired: a connection that answers is worth keeping. */
const GRACE_MS = 1_000;

/** What ends an attempt before it has come to its end. */
export interface AttemptLimits {
  /** In ms, the wait for a connection included; 0 for none (contract O3). */
  timeoutMs: number;
  /** Gives the attempt a second to end. */
  signal?: AbortSignal | undefined;
}

/** An attempt took longer than `timeoutMs`. */
export class TimedOut extends Error {
  /** @param hadConnection false where the time was over before the pool gave a connection. */
  constructor(readonly hadConnection: boolean) {
    super('The attempt took longer than timeoutMs');
  }
}

/** Whoever asked for the attempt does not want its result any more. */
export class Aborted extends Error {
  constructor() {
    super('The attempt was aborted');
  }
}

/**
 * Runs an attempt on one connection of the host's pool. The connection goes back unless it cannot be trusted: then it is
 * destroyed, so that the server rolls back, and no later statement finds a transaction that was left open (contract O5).
 *
 * @param em a fork that is used for nothing else; its statements run on the connection.
 * @param isSpoilt whether the connection may not be used again after this error of `work`.
 * @throws TimedOut, Aborted when the limits end the attempt.
 */
export async function onConnection<T>(
  em: SqlEntityManager,
  limits: AttemptLimits,
  isSpoilt: (error: unknown) => boolean,
  work: (connection: AttemptConnection) => Promise<T>,
): Promise<T> {
  const deadline = deadlineOf(limits);
  try {
    const connection = await deadline.within(reserveConnection(em), false, (late) => late.release());
    const attempt = new AttemptConnection(em, connection, isSpoilt, () => deadline.restart());
    em.setTransactionContext(connection.context);
    try {
      // What runs in this process always ends, and could not be stopped.
      return await (connection.destroy ? deadline.within(work(attempt), true) : work(attempt));
    } catch (error) {
      if (error instanceof TimedOut || error instanceof Aborted || isSpoilt(error)) attempt.spoil();
      throw error;
    } finally {
      // The transaction context is not reset: a statement of `work` that is run after the deadline must fail on the
      // destroyed connection, and not run on another one outside of the transaction.
      await attempt.end();
    }
  } finally {
    deadline.clear();
  }
}

export interface TransactionHooks {
  /** Until this is called a lost connection makes the server roll back; after it the writes may be stored. */
  beforeCommit?: () => void;
  /** Called with the error of the rollback. */
  rollbackFailed?: (error: unknown) => void;
}

/** How a transaction begins. */
export interface TransactionStart {
  setting?: string | undefined;
  prefix?: string;
  begin?: string | undefined;
}

/** The connection of an attempt. */
export class AttemptConnection {
  readonly #em: SqlEntityManager;
  readonly #reserved: ReservedConnection;
  readonly #isSpoiltBy: (error: unknown) => boolean;
  #isSpoilt = false;

  constructor(
    em: SqlEntityManager,
    reserved: ReservedConnection,
    isSpoilt: (error: unknown) => boolean,
    /** Begins the attempt's time anew: for work of any length whose statements are answered in time. */
    readonly restartDeadline: () => void,
  ) {
    this.#em = em;
    this.#reserved = reserved;
    this.#isSpoiltBy = isSpoilt;
  }

  /** The driver's object, the same whenever the connection comes out of the pool. */
  get identity(): object {
    return this.#reserved.driverConnection;
  }

  /**
   * Runs `work` in a transaction.
   *
   * @param start.setting a statement that is run before the `begin`.
   * @param start.prefix what the `begin` itself starts with.
   * @throws the first error, also when the rollback fails.
   */
  async transaction<T>(
    work: () => Promise<T>,
    { beforeCommit, rollbackFailed }: TransactionHooks = {},
    { setting, prefix = '', begin = 'begin' }: TransactionStart = {},
  ): Promise<T> {
    if (setting !== undefined) await command(this.#em, setting);
    await command(this.#em, prefix + begin);
    try {
      const result = await work();
      beforeCommit?.();
      await command(this.#em, 'commit');
      return result;
    } catch (error) {
      // A connection that is destroyed is rolled back by the server; a `rollback` on it might never be answered.
      if (!this.#reserved.destroy || !this.#isSpoiltBy(error)) {
        await command(this.#em, 'rollback').catch((failed: unknown) => {
          this.spoil();
          rollbackFailed?.(failed);
        });
      }
      throw error;
    }
  }

  /** The connection is not to be used again. */
  spoil(): void {
    this.#isSpoilt = true;
  }

  async end(): Promise<void> {
    const reserved = this.#reserved;
    if (this.#isSpoilt && reserved.destroy) await reserved.destroy();
    else reserved.release();
  }
}

/** The end of an attempt's time, from now on. */
function deadlineOf({ timeoutMs, signal }: AttemptLimits) {
  let timer: NodeJS.Timeout | undefined;
  let restart = () => {};
  let grace: NodeJS.Timeout | undefined;
  let hadConnection = false;
  let isOver = false;
  let abort: (() => void) | undefined;
  const over =
    timeoutMs === 0 && !signal
      ? undefined
      : new Promise<never>((_, reject) => {
          const end = (error: Error) => {
            isOver = true;
            reject(error);
          };
          if (timeoutMs > 0) {
            restart = () => {
              clearTimeout(timer);
              timer = setTimeout(() => end(new TimedOut(hadConnection)), timeoutMs);
            };
            restart();
          }
          abort = () => {
            grace = setTimeout(() => end(new Aborted()), GRACE_MS);
          };
          if (signal?.aborted) abort();
          else signal?.addEventListener('abort', abort);
        });
  // It may be over while nothing waits for it.
  over?.catch(() => undefined);
  return {
    /**
     * @param hasConnection whether the pool has given a connection, for the error.
     * @param late is called with a result that comes after the deadline.
     * @throws TimedOut, Aborted at the deadline.
     */
    async within<T>(work: Promise<T>, hasConnection: boolean, late?: (result: T) => void): Promise<T> {
      if (!over) return work;
      hadConnection = hasConnection;
      work.then(
        (result) => isOver && late?.(result),
        () => undefined,
      );
      return Promise.race([work, over]);
    },
    /** Not after the deadline: a timer would be left behind. */
    restart: () => !isOver && restart(),
    clear() {
      restart = () => {};
      clearTimeout(timer);
      clearTimeout(grace);
      if (abort) signal?.removeEventListener('abort', abort);
    },
  };
}
