import type { Database } from '../../database/calls/database.js';
import { sessionHead } from '../../database/statements/sessions.js';
import type { SessionHead } from '../../database/statements/stored-session.js';
import type { SessionKey } from '../../model/keys.js';
import type { CompleteLogPosition } from '../../model/log-history.js';
import type { NotificationClient } from '../../model/options.js';
import { Positions } from '../positions.js';
import type { ReaderCall } from '../reader-call.js';
import { wakersOf } from './announcer.js';
import { listenerOf } from './listener.js';
import { LogPoller, type HeadWatch } from './poller.js';

/** Gives the heads of the log and of its sessions, now or whenever they change. */
export class Heads {
  readonly #database: Database;
  readonly #pollIntervalMs: number;
  /** Starts to listen for notifications of commits, if the database sends them. @returns a function that stops. */
  readonly #listen: (() => () => void) | undefined;

  /** @param listen makes the client of a listener. */
  constructor(database: Database, pollIntervalMs: number, listen: (() => NotificationClient) | undefined) {
    this.#database = database;
    this.#pollIntervalMs = pollIntervalMs;
    const wakers = wakersOf(database);
    const channel = database.dialect.push?.channel(database.tables);
    if (!listen || !channel) return;
    this.#listen = listenerOf({
      create: listen,
      channel,
      wake: () => {
        for (const wake of wakers) wake();
      },
      report: (error) => database.report(error, { operation: 'listen', key: {} }),
    });
  }

  /** Assigns positions to all events that are committed now, if this account may. @returns the head of the log. */
  ofLog(call: ReaderCall): Promise<CompleteLogPosition> {
    return call.waitOrAbort(async () => {
      const positions = new Positions(this.#database);
      const { position, epoch, change, history } = await positions.assign(call.report, call.signal);
      return { position, epoch, change, history };
    });
  }

  /** @returns the head of a session, or undefined. */
  ofSession(call: ReaderCall, session: SessionKey): Promise<SessionHead | undefined> {
    return call.run((sql) => sessionHead(sql, session));
  }

  /** @param position that of the reader, to measure how far it is behind. */
  watchLog(call: ReaderCall, position: () => number): HeadWatch<CompleteLogPosition> {
    const watch = this.#poller.watch(call);
    return this.#listening(
      watch,
      call.follow(() => Math.max(0, watch.newest().position - position())),
    );
  }

  watchSession(call: ReaderCall, session: SessionKey): HeadWatch<SessionHead | undefined> {
    return this.#listening(this.#poller.watchSession(call, session));
  }

  get #poller(): LogPoller {
    return LogPoller.of(this.#database, this.#pollIntervalMs);
  }

  #listening<Head>(watch: HeadWatch<Head>, unfollow?: () => void): HeadWatch<Head> {
    const stop = this.#listen?.();
    const leave = () => {
      unfollow?.();
      stop?.();
      return watch.leave();
    };
    return { ...watch, leave };
  }
}
