import { p, type InferEntity } from '@mikro-orm/core';
import { CALL_NAME_LENGTH, KEY_LENGTHS } from '../src/model/keys.js';
import { MAX_SEQ } from '../src/model/seq-ranges.js';
import { ofSession } from './adk-session.js';
import { json, key, time } from './columns.js';
import { sharedEntity } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/** A long-running call, or one of ADK's own questions, that waits for a person or was answered: see `Calls`. */
export const adkOpenCall = ({ named, table }: Naming) =>
  sharedEntity({
    name: 'AdkOpenCall',
    ...table('open_calls'),
    properties: {
      session: () => ofSession(named('open_calls_session')),
      // Only for the indexes, which begin with columns of the session's key: MikroORM names them by properties.
      appName: key('app_name', KEY_LENGTHS.appName).persist(false),
      userId: key('user_id', KEY_LENGTHS.userId).persist(false),
      sessionId: key('session_id', KEY_LENGTHS.sessionId).persist(false),
      /** The number of the last event that closes it; `MAX_SEQ` while it is open. */
      openUntil: p.integer().fieldName('open_until').primary().autoincrement(false),
      /** The number of the event that made the call. */
      seq: p.integer().fieldName('seq').primary().autoincrement(false),
      /** Its place among the calls of that event, from 0. */
      number: p.integer().fieldName('number').primary().autoincrement(false),
      /** The number of its first answer; `MAX_SEQ` if it has none. */
      answeredFrom: p.integer().fieldName('answered_from').default(MAX_SEQ),
      /** Whom it waits for: 0 nobody, 1 a person, 2 the agent, which has not continued since the answer. */
      waitsFor: p.integer().fieldName('waits_for').default(1),
      /** The name of the tool or of ADK's question; a hash replaces the end of a long one. */
      name: key('name', CALL_NAME_LENGTH),
      /** The time of the event. */
      timestamp: time('timestamp'),
      /** The rest of `LongRunningCall`, by which its response is found. */
      data: json('data'),
    },
    indexes: [
      {
        name: named('open_calls_app'),
        properties: ['appName', 'waitsFor', 'timestamp', 'userId', 'sessionId', 'seq', 'number'],
      },
      {
        name: named('open_calls_user'),
        properties: ['appName', 'userId', 'waitsFor', 'timestamp', 'sessionId', 'seq', 'number'],
      },
    ],
  });

export const AdkOpenCall = adkOpenCall(naming());
export type AdkOpenCall = InferEntity<typeof AdkOpenCall>;
