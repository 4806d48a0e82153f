import type { StateValue } from '../database/sql/values.js';
import type { CreateSessionRequest, Session } from '@google/adk';
import { randomUUID } from 'node:crypto';
import { setState } from '../database/dialects/session-rows.js';
import { confirm } from '../database/calls/confirm.js';
import { isDuplicate } from '../database/calls/failure-of.js';
import type { Outcome } from '../database/calls/retry.js';
import type { Sql } from '../database/dialects/dialect.js';
import { creationChanges, recordChanges } from '../database/statements/changes.js';
import { readSession } from './session-reader.js';
import { deleteSoftDeleted, insertSession, lockSession } from '../database/statements/sessions.js';
import type { ReadHead, SessionHead } from '../database/statements/stored-session.js';
import { encodedState } from '../database/statements/state.js';
import { AlreadyExistsError } from '../model/errors.js';
import { checkKeys, type SessionKey } from '../model/keys.js';
import { byScope, type StateEntries } from '../model/state.js';
import { handleOf } from './handle.js';
import { getSession, readableState } from './read.js';
import type { ServiceContext } from './service-context.js';
import { stateEntries } from './state.js';

/** An attempt fails if the session is deleted between creating and reading it. Five times in a row would be a bug. */
const CREATE_ATTEMPTS = 5;

/** A session to create, with a copy of its state. */
interface NewSession {
  key: SessionKey;
  isIdGiven: boolean;
  entries: StateEntries;
}

/** @throws InvalidKeyError, UnserializableValueError if a key or a value cannot be stored. */
export function newSession({ appName, userId, sessionId, state }: CreateSessionRequest): NewSession {
  const key = { appName, userId, sessionId: sessionId || randomUUID() };
  checkKeys(key);
  return { key, isIdGiven: Boolean(sessionId), entries: byScope(stateEntries(key, state ?? {}, 'state')) };
}

/** @param operation the name of the call in errors. @throws AlreadyExistsError if the id is taken. */
export async function createSession(
  service: ServiceContext,
  { key, entries }: NewSession,
  operation: string,
): Promise<Session> {
  const origin = randomUUID();
  const head: SessionHead = { incarnation: origin, origin, firstSeq: 1, lastSeq: 0, lastUpdateTime: Date.now() };
  const session = { ...key, origin };
  const { database } = service;
  const outcome: Outcome = {};
  const read = (sql: Sql) => readSession(sql, key, 0);
  const create = (deletesSoftDeleted: boolean) =>
    database.transaction(
      async (sql) => {
        if (deletesSoftDeleted) await deleteSoftDeleted(sql, key);
        await insertSession(sql, key, head);
        await setState(sql, key, encodedState(sql.texts, session, entries));
        await recordChanges(sql, creationChanges(sql.texts, session, entries));
        return read(sql);
      },
      { outcome },
    );
  return service.write(operation, key, async () => {
    // A soft-deleted session may have the id (contract K3). That is rare, so only the second attempt looks for one.
    for (const deletesSoftDeleted of [false, true]) {
      try {
        const session = await create(deletesSoftDeleted);
        if (session) return created(service, key, session);
      } catch (error) {
        if (!isDuplicate(error)) throw error;
      }
      const existing = await database.run(read, { outcome });
      if (existing?.incarnation === head.incarnation) {
        // The answer to the commit was lost, and the retry found the session that this call had created.
        await confirm(database, outcome);
        return created(service, key, existing);
      }
      // In a host's transaction it may be an old one, which somebody has soft-deleted since.
      if (existing && !database.isJoined) break;
    }
    throw new AlreadyExistsError(key.sessionId);
  });
}

/** Damaged state of the user or the app is reported to `onDamage` and not thrown: the session is already stored. */
function created(
  service: ServiceContext,
  key: SessionKey,
  session: ReadHead & { state: readonly StateValue[] },
): Session {
  service.leases.created(key);
  const state = readableState(session.state);
  service.reportDamage(key, state.damaged);
  return handleOf(key, session, state.value, []);
}

export async function getOrCreateSession(service: ServiceContext, made: NewSession): Promise<Session> {
  const operation = 'getOrCreateSession';
  const { key, isIdGiven } = made;
  if (!isIdGiven) return createSession(service, made, operation);
  return service.database.observe({ operation, key }, async () => {
    for (let attempt = 1; ; attempt++) {
      const session = await getSession(service, key, operation);
      if (session) return session;
      try {
        return await createSession(service, made, operation);
      } catch (error) {
        if (!(error instanceof AlreadyExistsError) || attempt === CREATE_ATTEMPTS) throw error;
        // A host's transaction may not see it yet; under its lock it does on InnoDB.
        if (service.database.isJoined) await service.database.transaction((sql) => lockSession(sql, key));
      }
    }
  });
}
