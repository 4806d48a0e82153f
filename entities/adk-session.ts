import { p, type InferEntity } from '@mikro-orm/core';
import { KEY_LENGTHS, TITLE_LENGTH } from '../src/model/keys.js';
import { optionalJson, key, time } from './columns.js';
import { withCollatedType, sharedEntity } from './mikro-orm.js';
import { naming, type Naming } from './naming.js';

/** A conversation. Each append locks this row, and numbers its events by `lastSeq`. */
export const adkSession = ({ named, table }: Naming) =>
  sharedEntity({
    name: 'AdkSession',
    ...table('sessions'),
    properties: {
      appName: key('app_name', KEY_LENGTHS.appName).primary(),
      userId: key('user_id', KEY_LENGTHS.userId).primary(),
      id: key('session_id', KEY_LENGTHS.sessionId).primary(),
      /** The random name of one history of the session. It changes with a rewind, and if the id is used again. */
      incarnation: p.string().fieldName('incarnation').length(36),
      /** The first incarnation, which a rewind does not change. Encoded texts are bound to it. */
      origin: key('origin', 36),
      /** `active`, `deleted` (softly), or nobody sees it: `ending` while it is deleted for good, `importing` until it is whole. */
      status: p.string().fieldName('status').length(9).default('active'),
      /** The number of the newest event; 0 if there never was one. */
      lastSeq: p.integer().fieldName('last_seq').default(0),
      /** The number of the oldest event; above `lastSeq` if all were trimmed. */
      firstSeq: p.integer().fieldName('first_seq').default(1),
      /** The id of its newest change. The first id is the time of its creation, in µs. */
      lastChange: p.bigint('number').fieldName('last_change').defaultRaw('0'),
      /** Whether an event may change `adk_open_calls` that neither makes a long-running call nor answers one. */
      hasPendingCalls: p.boolean().fieldName('has_pending_calls').default(false),
      createTime: time('create_time'),
      lastUpdateTime: time('last_update_time'),
      /** The holder of the lease, see `SessionLeases`; null if there is none. */
      leaseHolder: p.string().fieldName('lease_holder').length(255).nullable(),
      /** The fencing token of the newest lease, even if that was released. */
      leaseToken: p.bigint('number').fieldName('lease_token').defaultRaw('0'),
      /** By the database's clock. */
      leaseExpires: time('lease_expires').nullable(),
      /** When the newest lease was taken, by the database's clock; null if there was none. */
      leaseSince: time('lease_since').nullable(),
      /** When it was deleted with `deletion: 'soft'`, by the database's clock; null while it is active. */
      deletedAt: time('deleted_at').nullable(),
      /**
       * When somebody last restored, rewound or described it, set its state or rewrote an event, by the database's clock. Appends leave
       * it as it is.
       */
      touchedAt: time('touched_at').nullable(),
      title: key('title', TITLE_LENGTH).nullable(),
      /** An object of strings. */
      labels: optionalJson('labels'),
      /** Of a fork: the session that it was copied from, of the same user in the same app. It may be gone. */
      forkedFrom: key('forked_from', KEY_LENGTHS.sessionId).nullable(),
      /** Of a fork of a fork: the session with which the forks began. It may be gone. */
      forkedRoot: key('forked_root', KEY_LENGTHS.sessionId).nullable(),
      /** Of a fork: its events up to this number are copies. A rewind to an earlier one lowers it. */
      forkedSeq: p.integer().fieldName('forked_seq').nullable(),
    },
    indexes: [
      { name: named('sessions_user_update'), properties: ['appName', 'userId', 'lastUpdateTime', 'id'] },
      { name: named('sessions_app_update'), properties: ['appName', 'lastUpdateTime', 'id', 'userId'] },
    ],
  });

export const AdkSession = adkSession(naming());
export type AdkSession = InferEntity<typeof AdkSession>;

/** The session that a row belongs to, as the first part of its primary key. It is deleted with the session. */
export const ofSession = (foreignKeyName: string) =>
  withCollatedType(p.manyToOne(AdkSession))
    .primary()
    .joinColumns('app_name', 'user_id', 'session_id')
    .foreignKeyName(foreignKeyName)
    .index(false)
    .deleteRule('cascade')
    .updateRule('no action');
