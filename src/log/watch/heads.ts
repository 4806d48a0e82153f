import type { Database } from '../../database/calls/database.js';
import { sessionHead } from '../../database/statements/sessions.js';
import type { SessionHead } from '../../database/statements/stored-session.js';
import type { SessionKey } from '../../model/keys.js';
import type { CompleteLogPosition } from '../../model/log-history.js';
import type { NotificationClient } from '../../model/options.js';
import type { ReaderCall } from '../reader-call.js';
import { LogListener } from './listener.js';
import { LogPoller, type HeadWatch } from './poller.js';

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
    return this.#listening(this.#poller.watch(call));
  }

  watchSession(call: ReaderCall, session: SessionKey): HeadWatch<SessionHead | undefined> {
    return this.#listening(this.#poller.watchSession(call, session));
  }

  #listening<Head>(watch: HeadWatch<Head>): HeadWatch<Head> {
    const stop = this.#listener?.start();
    const leave = () => {
      stop?.();
      return watch.leave();
    };
    return { ...watch, leave };
  }
}
