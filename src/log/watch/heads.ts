import { Aborted } from '../../database/calls/connection.js';
import type { Database } from '../../database/calls/database.js';
import { sessionHead, type SessionHead } from '../../database/statements/sessions.js';
import type { SessionKey } from '../../model/keys.js';
import type { CompleteLogPosition } from '../../model/log-history.js';
import type { NotificationClient } from '../../model/options.js';
import type { ReaderCall } from '../reader-call.js';
import { LogListener } from './listener.js';
import { LogPoller, type Watch } from './poller.js';

/** Gives the heads of the log and of its sessions, now or whenever they change. */
export class Heads {
  readonly #poller: LogPoller;
  readonly #listener: LogListener | undefined;

  /** @param listen makes the client of a listener, if the database notifies of commits. */
  constructor(database: Database, pollIntervalMs: number, listen: (() => NotificationClient) | undefined) {
    this.#poller = LogPoller.of(database, pollIntervalMs);
    const channel = database.dialect.push?.channel(database.tables);
    if (!listen || !channel) return;
    this.#listener = new LogListener(
      listen,
      channel,
      () => this.#poller.wake(),
      (error) => database.report(error, { operation: 'listen', key: {} }),
    );
  }

  /** Assigns positions to all events that are committed now, if this account may. @returns the head of the log. */
  ofLog(call: ReaderCall): Promise<CompleteLogPosition> {
    return call.waitOrAbort(async () => {
      const { position, epoch, change, history } = await this.#poller.positions.assign(call.report, call.signal);
      return { position, epoch, change, history };
    });
  }

  /** @returns the head of a session, or undefined. */
  ofSession(call: ReaderCall, session: SessionKey): Promise<SessionHead | undefined> {
    return call.run((sql) => sessionHead(sql, session));
  }

  watchLog(call: ReaderCall): HeadWatch<CompleteLogPosition> {
    return new HeadWatch(call, this.#poller.watch(call.report), this.#listener?.start());
  }

  watchSession(call: ReaderCall, session: SessionKey): HeadWatch<SessionHead | undefined> {
    return new HeadWatch(call, this.#poller.watchSession(call.report, session), this.#listener?.start());
  }
}

/** The heads that one reader gets, one after the other. Whoever has one must `leave` it. */
class HeadWatch<Head> {
  readonly #call: ReaderCall;
  readonly #watch: Watch<Head>;
  readonly #stopListening: (() => void) | undefined;
  /** The head that the reader has. */
  #head: Head | undefined;

  constructor(call: ReaderCall, watch: Watch<Head>, stopListening: (() => void) | undefined) {
    this.#call = call;
    this.#watch = watch;
    this.#stopListening = stopListening;
  }

  /** As of the last poll. */
  get newest(): Head {
    return this.#watch.head;
  }

  /** Polls now. @returns the head, which may be unchanged. @throws Aborted when the signal fires. */
  async poll(): Promise<Head> {
    await this.#call.waitOrAbort(() => this.#watch.poll());
    return (this.#head = this.#watch.head);
  }

  /** Waits for a head that the reader does not have. @throws Aborted when the signal fires. */
  async next(): Promise<Head> {
    for (;;) {
      if (this.#call.signal?.aborted) throw new Aborted();
      if (this.#watch.head !== this.#head) return (this.#head = this.#watch.head);
      await this.#call.wait(() => this.#watch.change(this.#call.signal));
    }
  }

  /** Resolves once no statement runs for the reader. */
  async leave(): Promise<void> {
    this.#stopListening?.();
    await this.#watch.leave();
  }
}
