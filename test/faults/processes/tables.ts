import { LockMode, type EntityManager } from '@mikro-orm/core';
import { AdkAppState, AdkEvent, AdkSession, AdkSessionState, AdkUserState } from '../../../entities/index.js';
import { keyOf } from './protocol.js';

type State = Record<string, unknown>;

export interface Stored {
  lastSeq: number;
  seqs: number[];
  ids: string[];
  /** The state in the tables of session, user and app, with prefixed keys. */
  state: State;
  /** The state that results from the events, one after the other. */
  folded: State;
}

/** Reads a session from the tables under its lock: no write to it is in progress. */
export async function readTables(em: EntityManager, sessionId: string): Promise<Stored> {
  const { appName, userId } = keyOf(sessionId);
  return em.fork().transactional(async (tx) => {
    const session = await tx.findOneOrFail(
      AdkSession,
      { appName, userId, id: sessionId },
      { lockMode: LockMode.PESSIMISTIC_WRITE },
    );
    const events = await tx.find(AdkEvent, { session }, { orderBy: { seq: 'asc' } });
    const own = await tx.find(AdkSessionState, { session });
    const ofUser = await tx.find(AdkUserState, { appName, userId });
    const ofApp = await tx.find(AdkAppState, { appName });
    const deltas = events.map(({ data }) => (data as { actions: { stateDelta: State } }).actions.stateDelta);
    return {
      lastSeq: session.lastSeq,
      seqs: events.map(({ seq }) => seq),
      ids: events.map(({ id }) => id),
      state: Object.fromEntries([
        ...own.map(({ key, value }) => [key, value]),
        ...ofUser.map(({ key, value }) => [`user:${key}`, value]),
        ...ofApp.map(({ key, value }) => [`app:${key}`, value]),
      ]),
      folded: Object.assign({}, ...deltas) as State,
    };
  });
}

/** 1, 2, 3 … */
export const upTo = (count: number) => Array.from({ length: count }, (_, i) => i + 1);
