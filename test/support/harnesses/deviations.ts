/** What a service does instead of following a rule, by the full name of the test. */
export type Deviations = Readonly<Record<string, string>>;

const SPOILED_BY_JSON = [
  'NaN',
  'Infinity',
  'Map',
  'Set',
  'a function',
  'a symbol',
  'a typed array',
  'a Set in a class',
  'a toJSON that gives NaN',
];

const acceptsUnserializable = (what: readonly string[], instead: string): Deviations =>
  Object.fromEntries(what.map((value) => [`C2 ${value} is refused before anything is written`, instead]));

export const inMemoryDeviations: Deviations = {
  'A2 the handle of createSession is private to the caller': 'keeps the very values of state that it was given',
  'A2 changes of the request while createSession is under way reach neither handle nor storage':
    'keeps the very values of state that it was given',
  'A3 later changes to the object do not reach the stored event': 'stores the very object',
  'A3 changes while the append is under way do not reach it either': 'stores the very object',
  'A5 a retry of the same event is a no-op': 'sets `lastUpdateTime` back to the old event',
  'A5 an old event that is appended again rolls no newer state back': 'rolls newer state back',
  'A5 a replaced event that is the last writer of a key changes it':
    'a replaced event overwrites what later events wrote',
  'A6 a partial event is returned untouched': 'sets `lastUpdateTime` of the handle',
  'A8 of two branches the later write wins, in whatever order their events come':
    'for `user:` and `app:` keys the event that comes last wins',
  'A9 an append that fails does not hold up the ones behind it': 'takes what JSON cannot carry',
  'A11 a value that JSON cannot carry leaves handle and storage as they were': 'takes what JSON cannot carry',
  'A11 a timestamp that is no number leaves handle and storage as they were': 'takes `Infinity` as a time',
  'A11 a session that is gone leaves the handle as it was': 'appends to the handle alone, without an error',
  'B1 createSession gives keys to app, user and session by their prefix':
    '`createSession` keeps `app:` and `user:` keys in the session',
  'B2 concurrent creations lose no app: or user: key, nor do appends beside them':
    '`createSession` keeps `app:` and `user:` keys in the session',
  'B4 also when the handle was behind': 'a handle that is behind stays behind',
  ...acceptsUnserializable([...SPOILED_BY_JSON, 'BigInt', 'a cycle'], 'takes what JSON cannot carry'),
  'C4 afterTimestamp is exclusive': '`afterTimestamp` is inclusive',
  'C4 both together give the newest of those after': '`afterTimestamp` is inclusive',
  'C4 a filter by time takes every event that matches, in append order':
    'gives what follows the last event that is too old',
  'D1 an id that exists is refused, and the session stays as it is': 'replaces the session that exists',
  'D1 of ten that create the same new session one wins, nine learn that it exists': 'all win, and the last one stays',
  'D2 ten that race for a new session all get the one': 'they get ten, and the last one stays',
  'D3 appending to a session that was never created fails': 'logs a warning, and loses the event',
  'D3 appending to a deleted session fails, and brings nothing back': 'logs a warning, and loses the event',
  'D5 without order the oldest update comes first, then the id': 'in no order by time',
  'D5 listed sessions have their merged state and no events': 'lists sessions without state',
  'E2 a handle that is behind is appended to, and catches up in place': 'a handle that is behind stays behind',
  'E2 a handle is behind by its events, not by its clock': 'a handle that is behind stays behind',
  'E2 temp: keys and direct writes of a handle that was behind stay': 'a handle that is behind stays behind',
  ...Object.fromEntries(
    ['its service was closed', 'its process was killed'].flatMap((how) => [
      [`O9 what was acknowledged is there after ${how}`, 'is gone with its process'],
      [`O9 a session continues after ${how}, also with an earlier handle`, 'is gone with its process'],
    ]),
  ),
};

/** Deviations of `DatabaseSessionService` on any database. */
export const databaseDeviations: Deviations = {
  'A2 the handle of createSession is private to the caller':
    "`createSession` puts the request's `app:` and `user:` values into the handle",
  'A2 changes of the request while createSession is under way reach neither handle nor storage':
    'stores what the object became meanwhile',
  'A3 changes while the append is under way do not reach it either': 'stores what the object became meanwhile',
  'A4 session.state keeps its identity, and keys outside the delta stay':
    '`session.state` is another object after each append, without the keys that were not stored',
  'A5 a retry of the same event is a no-op': 'sets `lastUpdateTime` back to the old event',
  'A5 an event whose id is known is replaced at its place': 'moves the event to the end',
  'A5 an old event that is appended again rolls no newer state back': 'rolls newer state back',
  'A5 a replaced event that is the last writer of a key changes it':
    'a replaced event overwrites what later events wrote',
  'A7 temp: keys stay readable on the live handle': '`temp:` keys are gone after the next append',
  'A8 of two branches the later write wins, in whatever order their events come': 'the event that comes last wins',
  'A8 it wins also when both appends are under way at once': 'the event that comes last wins',
  'A10 events load in append order with equal timestamps': 'sorts by timestamp',
  'A10 events load in append order with timestamps that run backwards': 'sorts by timestamp',
  'A10 events load in append order with timestamps in disorder': 'sorts by timestamp',
  'A10 events load in append order with timestamps apart by less than a millisecond': 'cuts timestamps to milliseconds',
  'A10 events of two handles whose clocks differ load in append order': 'sorts by timestamp',
  'A15 an event without actions or invocationId is accepted': 'refuses an event without `invocationId`',
  'B5 createSession stores __proto__, constructor and toString as plain keys': 'loses `__proto__`',
  'B5 appendEvent does so too': 'loses `__proto__`',
  'C1 what JSON can carry comes back equal': 'strings with NUL fail',
  'C1 strings with NUL come back': 'strings with NUL fail',
  'C1 unknown fields and odd keys come back': 'loses `__proto__`',
  "C1 loaded events carry ADK's brand": 'loaded events are not branded',
  ...acceptsUnserializable(SPOILED_BY_JSON, 'stores what JSON makes of it'),
  'C3 any time comes back exactly, fractions included': 'whole milliseconds only',
  'C4 numRecentEvents gives the newest, 0 and absent give all': '0 gives none',
  'C4 both together give the newest of those after': '0 gives none',
  'C4 afterTimestamp counts fractions of a millisecond': 'cuts timestamps to milliseconds',
  'C4 a filter by time takes every event that matches, in append order': 'sorts by timestamp',
  'D5 without order the oldest update comes first, then the id': 'in no order',
  'E2 a handle that is behind is appended to, and catches up in place': 'replaces state and events of the handle',
  'E2 a handle is behind by its events, not by its clock': 'misses events whose timestamp is old',
  'E2 temp: keys and direct writes of a handle that was behind stay': 'keys that were not stored are gone',
};

export const databaseRaces: Deviations = {
  'A12 calls that race tell neither SQL nor values': "the driver's error shows SQL and values",
  'A9 parallel appends on one handle take effect in call order': 'in any order',
  'A9 an append that fails does not hold up the ones behind it': 'in any order',
  'A10 events of several instances that append at once are all there, each in its order': 'in any order',
  'B2 concurrent appends of other sessions lose no app: or user: key': 'loses most of the keys',
  'B2 concurrent creations lose no app: or user: key, nor do appends beside them': 'loses most of the keys',
  'D1 of ten that create the same new session one wins, nine learn that it exists': "nine fail with the driver's error",
  'D1 concurrent first sessions of a new app and user are all created': "all but one fail with the driver's error",
  'D2 ten that race for a new session all get the one': "all but one fail with the driver's error",
  'D8 state and events that are read together belong together, whoever appends':
    'reads state and events at different moments',
};

/** Races on SQLite only. */
export const sqliteRaces: Deviations = {
  'A10 events of several instances that append at once are all there, each in its order':
    'fails: the database is locked',
  'B2 concurrent creations lose no app: or user: key, nor do appends beside them': 'fails: the database is locked',
  'B2 concurrent appends of other sessions lose no app: or user: key': 'fails: the database is locked',
  'B2 concurrent appends from two handles of a session lose no key': 'fails: the database is locked',
};

/** Deviations on PostgreSQL only. */
export const postgresDeviations: Deviations = {
  'C1 state values come back equal': 'strings with lone surrogates fail',
  'C1 strings with lone surrogates come back': 'strings with lone surrogates fail',
  'C1 the order of keys comes back': 'keys come back in another order',
  'C1 invocationId, author and branch may have any length': 'an `invocationId` of more than 255 characters fails',
};
