import { isUnfinished, unfinishedAt } from '../database/statements/stored-session.js';
import type { DescribedSession, TransferredSession } from './transferred-sessions.js';
import { InvalidArgumentError, SessionExistsError } from '../model/errors.js';
import type { NumberedEvent, SessionRecord, StorableRecord } from './records.js';

/** Records of a session that are written together. */
export interface SessionBatch {
  session: StorableRecord & { type: 'session' };
  events: readonly NumberedEvent[];
  /** Whether these are the last events of the session. */
  isLast: boolean;
}

/** What is stored here of the session. */
export interface StoredHere {
  row: TransferredSession | undefined;
  /** The number of the newest event that an earlier batch of a dry run would have written. */
  drySeq: number | undefined;
}

/** What happens to a session's row before its events are written. */
type Start =
  | 'create'
  /** The row lacks events, since its deletion has begun, or other records were not imported to their end. It is written again. */
  | 'replace'
  | 'keep';

/** What happens to the session when the events of a batch are written. */
type End =
  /** More events follow. Until then the session is soft-deleted, so that nobody sees a part of it. */
  | { kind: 'hide'; row: DescribedSession }
  /** All events are there. The session gets its state, title and labels. */
  | {
      kind: 'complete';
      row: DescribedSession;
      /** Whether the session was incomplete until now, without state. */
      isFirst: boolean;
      /** Whether it was soft-deleted until now, for readers of the log. */
      wasDeleted: boolean;
    }
  /** The session got new events here since it was exported, and keeps its state. */
  | { kind: 'leave' };

/** What the import does with a batch. */
export interface ImportPlan {
  /** Whether to count the session as new. */
  isNew: boolean;
  start: Start;
  /** The events that are not stored here, with consecutive numbers; the others are skipped. */
  events: readonly NumberedEvent[];
  /** The number of the session's newest event afterwards. */
  lastSeq: number;
  end: End;
}

/** Compares a batch with what is stored here, and decides what to do. It reads and writes nothing. */
export class ImportPlanner {
  readonly #batch: SessionBatch;
  readonly #start: Start;
  readonly #isNew: boolean;
  /** The session's row, or the first one that it will get. */
  readonly #row: DescribedSession;
  /** The number of the newest event that is stored here. */
  readonly #knownSeq: number;
  readonly #isForeign: boolean;
  /** The origin to which encoded texts must be bound; undefined if the session is created for them. */
  readonly #origin: string | undefined;

  /** @param isForeign see `ImportMode`. */
  constructor(batch: SessionBatch, { row, drySeq }: StoredHere, isForeign = false) {
    this.#batch = batch;
    const { owner: key, session } = batch.session;
    const { firstSeq, createTime, lastUpdateTime } = session;
    const here = row?.status === 'ending' || (row && isLeftOfOthers(row, session)) ? undefined : row;
    this.#start = here ? 'keep' : row ? 'replace' : 'create';
    this.#isNew = !here && drySeq === undefined;
    const described = { deletedAt: undefined, title: null, labels: null };
    this.#row = here ?? { key, firstSeq, lastSeq: firstSeq - 1, createTime, lastUpdateTime, ...described };
    this.#knownSeq = Math.max(this.#row.lastSeq, drySeq ?? 0);
    this.#isForeign = isForeign;
    this.#origin = here?.origin;
  }

  /** The numbers of the events that are stored here already; `plan` needs their ids. */
  get known(): number[] {
    return this.#batch.events.map(({ seq }) => seq).filter((seq) => seq <= this.#knownSeq);
  }

  /**
   * @param stored the known events, by number; missing ones are not compared.
   * @throws InvalidArgumentError, SessionExistsError for records that cannot be written.
   */
  plan(stored: ReadonlyMap<number, { id: string }>): ImportPlan {
    const { events, session } = this.#batch;
    const { sessionId } = session.owner;
    if (this.#row.createTime !== session.session.createTime)
      throw new SessionExistsError(sessionId, 'It was created at another time.');

    const { bound } = session.session;
    if (bound && this.#origin !== undefined && this.#origin !== bound.origin) {
      const what = 'The records have texts as they are stored, which are bound to the other one.';
      throw new SessionExistsError(sessionId, what);
    }
    const other = events.find(({ seq, id }) => seq <= this.#knownSeq && (stored.get(seq)?.id ?? id) !== id);
    if (other) {
      const what = `Its event ${other.seq} has another id than the one that was to be written.`;
      throw new SessionExistsError(sessionId, what);
    }
    // This continues an interrupted import, and adds what is new in a later one.
    const fresh = events.filter(({ seq }) => seq > this.#knownSeq);
    const gap = fresh.findIndex(({ seq }, i) => seq !== this.#knownSeq + 1 + i);
    const behindGap = fresh[gap];
    if (behindGap) {
      const what = `lacks the events between ${this.#knownSeq + gap} and ${behindGap.seq}.`;
      throw new InvalidArgumentError(`Session ${sessionId} ${what}`);
    }
    const lastSeq = this.#knownSeq + fresh.length;
    if (this.#batch.isLast && lastSeq < session.session.lastSeq)
      throw new InvalidArgumentError(`Session ${sessionId} lacks its events after number ${lastSeq}.`);
    return { isNew: this.#isNew, start: this.#start, events: fresh, lastSeq, end: this.#end(lastSeq, fresh.at(-1)) };
  }

  /** @param newest the newest event that the batch writes. */
  #end(lastSeq: number, newest: NumberedEvent | undefined): End {
    const { session, isLast } = this.#batch;
    const { createTime } = session.session;
    if (!isLast) {
      // A session that was complete stays what it was: the last batch would record its history again.
      const isIncomplete = this.#isNew || this.#isUnfinished;
      const lastUpdateTime = newest?.timestamp ?? this.#row.lastUpdateTime;
      return {
        kind: 'hide',
        row: {
          ...this.#row,
          lastSeq,
          ...(isIncomplete ? { deletedAt: unfinishedAt(createTime) } : { lastUpdateTime }),
        },
      };
    }
    if (lastSeq !== session.session.lastSeq) return { kind: 'leave' };
    const row = this.#completeRow(lastSeq);
    const isFirst = this.#isNew || this.#isUnfinished;
    return { kind: 'complete', row, isFirst, wasDeleted: !isFirst && this.#row.deletedAt !== undefined };
  }

  get #isUnfinished(): boolean {
    return isUnfinished(this.#row);
  }

  #completeRow(lastSeq: number): DescribedSession {
    const { owner: key, session } = this.#batch.session;
    const { createTime, lastUpdateTime, title = null, labels, deletedAt } = session;
    // `first_seq` does not come from the record: if the session was trimmed here since the export, its first events are gone.
    const { firstSeq } = this.#row;
    const row = { key, firstSeq, lastSeq, createTime, lastUpdateTime };
    if (!this.#isForeign) return { ...row, title, labels: labels ? JSON.stringify(labels) : null, deletedAt };
    const keptDeletedAt = this.#isUnfinished ? undefined : this.#row.deletedAt;
    return { ...row, title: this.#row.title, labels: this.#row.labels, deletedAt: keptDeletedAt };
  }
}

/**
 * Whether an import of other records of the session was interrupted. Its events may be other ones: the session may have been rewound
 * since, or created again.
 */
const isLeftOfOthers = (row: TransferredSession, { bound, ...session }: SessionRecord) =>
  isUnfinished(row) &&
  (row.createTime !== session.createTime ||
    row.lastUpdateTime !== session.lastUpdateTime ||
    row.firstSeq !== session.firstSeq ||
    row.lastSeq >= session.lastSeq ||
    (bound !== undefined && row.origin !== bound.origin));
