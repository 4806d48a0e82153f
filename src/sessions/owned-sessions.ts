import { readParts, replaceParts } from '../database/dialects/event-parts.js';
import { SESSION_KEY, originOf } from '../database/sql/columns.js';
import { textOf } from '../database/sql/values.js';
import { encodedTable, ownerIn, type TextRow } from '../owned/encoded-rows.js';
import { sumOfBytes, type OwnedRows } from '../owned/owned-rows.js';
import { nextApp } from '../database/statements/walk.js';
import { ofEvent } from '../model/codec.js';
import type { SessionKey } from '../model/keys.js';
import { textsOfState } from './owned-state.js';
import { sessionRecords } from './session-records.js';
import { SessionWriter } from './session-writer.js';

/** Sessions with their events and state. Maintenance deletes them by itself, under their locks (`WholeSessions`). */
export const ownedSessions: OwnedRows = {
  name: 'sessions',
  records: { read: sessionRecords, writer: (run) => new SessionWriter(run) },
  sums: (sql) => ({
    deletedSessions: [['count(*)', sql.tables.sessions, "status in ('deleted', 'ending')"]],
    users: [['count(distinct user_id)', sql.tables.sessions]],
    eventBytes: [
      [sumOfBytes(sql, 'data'), sql.tables.events],
      [sumOfBytes(sql, 'text'), sql.tables.eventParts],
    ],
    stateBytes: [[sumOfBytes(sql, 'value'), sql.tables.sessionStates]],
  }),
  nextApp: (sql, after) => nextApp(sql, after, 'sessions'),
  texts: [
    encodedTable({
      of: ({ tables }) => ({
        table: tables.events,
        columns: [...SESSION_KEY, 'seq'],
        newestLast: ['position'],
        content: 'data',
        selected: tables.select.data,
        more: `, event_id, ${originOf(tables, 't')} as origin`,
      }),
      contextOf: (row) => ofEvent(ownerIn(row), textOf(row['event_id'])),
      rest: async (sql, key) => (await readParts(sql, ...eventOf(key), { isLocked: sql.isInTransaction })) ?? null,
      replaceRest: (sql, key, text) => replaceParts(sql, ...eventOf(key), text),
    }),
    textsOfState('session'),
  ],
};

function eventOf([appName, userId, sessionId, seq]: TextRow['key']): [SessionKey, number] {
  return [{ appName: String(appName), userId: String(userId), sessionId: String(sessionId) }, Number(seq)];
}
