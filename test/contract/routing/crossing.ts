import type { RecordedStatement } from '../../support/harnesses/statement-log.js';
import { whyNotRouted } from './router.js';

/** Statements that may ask all nodes: how they begin, or a part of them, and why. */
const MAY_CROSS: readonly [text: RegExp, reason: string][] = [
  [
    /^with given as \( select \* from unnest/,
    'one server writes several sessions at once; tables that are distributed get no such statement',
  ],
  [/^select name, value from adk_counters/, 'the head of the log: whether any session has entries without a position'],
  [/^select \* from \(select 'event' as kind/, 'the next entries of any session without a position'],
  [
    /^with given \(app_name, user_id, session_id, (seq|change_id), position/,
    'positions are given to entries of all sessions in one order',
  ],
  [
    /^select app_name, user_id, session_id, incarnation from adk_sessions where \(/,
    'the same: which sessions are others by now',
  ],
  [
    /^select app_name, user_id, session_id from adk_sessions where forked_seq > 0/,
    'a projection asks which sessions are forks',
  ],
  [/ from adk_forgotten_memories where app_name = \?/, 'exports walk through the marks of an app'],
  [/ from adk_events as e where position > \?/, 'the log of all sessions is read by position'],
  [/ from adk_changes as c where number > \?/, 'the same, of changes'],
  [/^select number from adk_changes where position </, 'where the changes begin for a cursor of events'],
  [/^select 'session' as kind, app_name,/, 'the state of the sessions, users and apps of a page of the log'],
  [/from adk_sessions where status = 'active' and \(\(/, 'the heads of all sessions that are watched'],
  [
    /^select user_id, session_id, incarnation, .* from adk_sessions where app_name = \? and status/,
    'a list of the sessions of an app',
  ],
  [/^select count\(\*\) as total from adk_sessions where app_name = \? and status/, 'the length of that list'],
  [/^select 'session' as kind, user_id, session_id, state_key/, 'the state of the sessions in a page of that list'],
  [/^select app_name, user_id, session_id, title/, 'findSessions of an app'],
  [/^select 0 as ordinal, count\(\*\) as events/, 'the studio shows the sizes of the sessions of several users'],
  [/^select app_name, user_id, session_id, lease_holder/, 'the leases that are held, of an app or of all'],
  [
    /^select c\.app_name, .* from \(select app_name, .* from adk_open_calls/,
    'the calls of an app, or of a user, that wait',
  ],
  [
    /^select app_name, user_id, session_id, incarnation, origin, status/,
    'maintenance, exports and imports walk through the sessions of an app',
  ],
  [
    /^select app_name, user_id, session_id, case when k\.session_id/,
    'prune looks for what is left of any session; of distributed tables it reads the keys alone',
  ],
  [
    /^select (change_id, app_name|distinct app_name).* from adk_changes where kind <> 'deleted' and \(\(/,
    'prune takes together what is left of several sessions',
  ],
  [
    /^select user_id as k0, session_id as k1, change_id as k2 from adk_changes as e where app_name = \? and user_id = \? and not exists/,
    'eraseUser reads what is recorded of sessions that are gone; one user, but once',
  ],
  [/^select distinct app_name, user_id, session_id from adk_changes where app_name = \?/, 'the same, of one table'],
  [/^select min\((app_)?name\) as name from/, 'maintenance goes from app to app'],
  [/^select user_id from adk_user_states where app_name = \? and user_id >/, 'exports go from user to user'],
  [/ as content\b.* from adk_\w+ as t where app_name = \?/, 'reencode reads the texts of an app'],
  [
    /^select app_name, user_id, session_id, filename, version from adk_artifact_versions where app_name/,
    'the same, of artifacts',
  ],
  [
    /^select app_name, user_id, session_id, memory_id, seq, .* from adk_memories where app_name = \?/,
    'reencode and exports walk through the memories of an app',
  ],
  [
    / from adk_memories as e where app_name = \? and expires <=/,
    'prune looks for memories of an app that have expired',
  ],
  [
    /^insert into adk_memories .* do update set seq =/,
    'a projection adds memories of several users; its cursor takes every node into the transaction, and an insert a user is slower',
  ],
  [/^update adk_memories set settles = .* and \(\(/, 'the same, of earlier memories of the sessions of these users'],
  [/ from adk_forgotten_memories where \(app_name/, 'the same, of what these users had forgotten'],
  [/ from adk_memories where model is not null and \(/, 'the same, of vectors that the memories of these users have'],
  [
    /^delete from adk_memories where seq is not null( and app_name = \?|$)/,
    'a projection begins anew, for an app or for all',
  ],
  [/^select app_name, .* group by app_name/, 'stats of an app, or of all'],
  [/^select name, \(select last_update_time/, 'the names of all apps'],
  [/^select (app_name|user_id) as name, max\(/, 'the names of all apps, or of all users of one, on distributed tables'],
  [/^delete from adk_changes where \(/, 'prune deletes what is left of several sessions'],
  [
    /^select (count\(\*\) as total|user_id as k0, session_id as k1, filename as k2) from adk_artifacts as e where app_name = \? and user_id = \? and not exists/,
    'eraseUser reads the artifacts of a user, once; `not exists` is a join by the same user',
  ],
  [
    /^select \(select count\(\*\) from \(select 1 as one from adk_events where position is null/,
    'doctor counts entries without a position',
  ],
];

/** Statements that are not routed, each text once, with the reason. */
export class CrossingStatements {
  readonly #seen = new Set<string>();
  readonly refused = new Map<string, string>();

  readonly watch = (statement: RecordedStatement): void => {
    const { text } = statement;
    // Those of tests, which ask MikroORM for entities, and those that were seen.
    if (this.#seen.has(text) || !text.includes('"adk_') || /"[a-z]0"/.test(text)) return;
    const why = whyNotRouted(statement);
    this.#seen.add(text);
    if (why === undefined) return;
    const allowed = MAY_CROSS.find(([part]) =>
      part.test(
        text
          .replace(/\s+/g, ' ')
          .replace(/"\w+"\."/g, '')
          .replaceAll('"', '')
          .trim(),
      ),
    );
    if (!allowed) this.refused.set(text, why);
  };
}
