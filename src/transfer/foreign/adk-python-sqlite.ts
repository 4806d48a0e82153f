import { eventData } from './event-data.js';
import { checkedTime, stateObject, type ForeignKind } from './foreign-rows.js';
import { msOf } from './python-event.js';

/** adk-python's `SqliteSessionService` (sessions/sqlite_session_service.py): times are seconds, as numbers. */
export const adkPythonSqlite: ForeignKind = {
  event: eventData,
  state: stateObject,

  times: (row) => ({
    createTime: checkedTime(msOf(row['create_time'])),
    lastUpdateTime: checkedTime(msOf(row['update_time'])),
  }),
};
