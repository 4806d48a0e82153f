import { Migration } from '@mikro-orm/migrations';
import { INITIAL_TABLES } from '../initial-tables.js';

/** All tables. */
export class Migration20261121000000_adk_initial extends Migration {
  override up(): void {
    this.addSql(`create table if not exists adk_app_states (
      app_name text not null,
      state_key text not null,
      value text not null,
      event_id text null,
      primary key (app_name, state_key)
    )`);

    this.addSql(`create table if not exists adk_sessions (
      app_name text not null,
      user_id text not null,
      session_id text not null,
      incarnation text not null,
      origin text not null,
      status text not null default 'active',
      last_seq integer not null default 0,
      first_seq integer not null default 1,
      last_change bigint not null default 0,
      has_pending_calls integer not null default false,
      create_time double not null,
      last_update_time double not null,
      lease_holder text null,
      lease_token bigint not null default 0,
      lease_expires double null,
      deleted_at double null,
      touched_at double null,
      title text null,
      labels text null,
      forked_from text null,
      forked_seq integer null,
      primary key (app_name, user_id, session_id)
    )`);
    this.addSql(`create index if not exists adk_sessions_user_update
      on adk_sessions (app_name, user_id, last_update_time, session_id)`);
    this.addSql(`create index if not exists adk_sessions_app_update
      on adk_sessions (app_name, last_update_time, session_id, user_id)`);

    this.addSql(`create table if not exists adk_events (
      app_name text not null,
      user_id text not null,
      session_id text not null,
      seq integer not null,
      event_id text not null,
      timestamp double not null,
      begins_turn integer not null default false,
      data text null,
      superseded text null,
      position bigint null,
      primary key (app_name, user_id, session_id, seq),
      constraint adk_events_session foreign key (app_name, user_id, session_id)
        references adk_sessions (app_name, user_id, session_id) on update no action on delete cascade
    )`);
    this.addSql(`create unique index if not exists adk_events_event_id
      on adk_events (app_name, user_id, session_id, event_id)`);
    this.addSql(`create index if not exists adk_events_position
      on adk_events (position, seq)`);

    this.addSql(`create table if not exists adk_counters (
      name text not null,
      value bigint not null,
      primary key (name)
    )`);

    this.addSql(`create table if not exists adk_event_parts (
      app_name text not null,
      user_id text not null,
      session_id text not null,
      seq integer not null,
      part integer not null,
      text text not null,
      primary key (app_name, user_id, session_id, seq, part),
      constraint adk_event_parts_session foreign key (app_name, user_id, session_id)
        references adk_sessions (app_name, user_id, session_id) on update no action on delete cascade
    )`);

    this.addSql(`create table if not exists adk_open_calls (
      app_name text not null,
      user_id text not null,
      session_id text not null,
      open_until integer not null,
      seq integer not null,
      number integer not null,
      name text not null,
      timestamp double not null,
      data text not null,
      primary key (app_name, user_id, session_id, open_until, seq, number),
      constraint adk_open_calls_session foreign key (app_name, user_id, session_id)
        references adk_sessions (app_name, user_id, session_id) on update no action on delete cascade
    )`);
    this.addSql(`create index if not exists adk_open_calls_app
      on adk_open_calls (app_name, open_until, timestamp, user_id, session_id, seq, number)`);
    this.addSql(`create index if not exists adk_open_calls_user
      on adk_open_calls (app_name, user_id, open_until, timestamp, session_id, seq, number)`);

    this.addSql(`create table if not exists adk_session_states (
      app_name text not null,
      user_id text not null,
      session_id text not null,
      state_key text not null,
      value text not null,
      event_id text null,
      primary key (app_name, user_id, session_id, state_key),
      constraint adk_session_states_session foreign key (app_name, user_id, session_id)
        references adk_sessions (app_name, user_id, session_id) on update no action on delete cascade
    )`);

    this.addSql(`create table if not exists adk_user_states (
      app_name text not null,
      user_id text not null,
      state_key text not null,
      value text not null,
      event_id text null,
      primary key (app_name, user_id, state_key)
    )`);

    this.addSql(`create table if not exists adk_changes (
      app_name text not null,
      user_id text not null,
      session_id text not null,
      change_id bigint not null,
      kind text not null,
      seq integer not null,
      event_seq integer null,
      time double not null,
      data text null,
      position bigint null,
      number bigint null,
      primary key (app_name, user_id, session_id, change_id)
    )`);
    this.addSql('create index if not exists adk_changes_number on adk_changes (number, change_id)');

    this.addSql(`create table if not exists adk_projections (
      name text not null primary key,
      version bigint not null,
      log_cursor text not null,
      update_time double not null
    )`);

    this.addSql(`create table if not exists adk_artifacts (
      app_name text not null,
      user_id text not null,
      session_id text not null,
      filename text not null,
      last_version integer not null,
      update_time double not null,
      primary key (app_name, user_id, session_id, filename)
    )`);

    this.addSql(`create table if not exists adk_artifact_versions (
      app_name text not null,
      user_id text not null,
      session_id text not null,
      filename text not null,
      version integer not null,
      info text not null,
      data blob null,
      upload integer null,
      parts integer null,
      create_time double not null,
      primary key (app_name, user_id, session_id, filename, version),
      constraint adk_artifact_versions_artifact foreign key (app_name, user_id, session_id, filename)
        references adk_artifacts (app_name, user_id, session_id, filename) on update no action on delete cascade
    )`);

    this.addSql(`create table if not exists adk_artifact_parts (
      app_name text not null,
      user_id text not null,
      session_id text not null,
      filename text not null,
      version integer not null,
      part integer not null,
      data blob not null,
      primary key (app_name, user_id, session_id, filename, version, part),
      constraint adk_artifact_parts_version foreign key (app_name, user_id, session_id, filename, version)
        references adk_artifact_versions (app_name, user_id, session_id, filename, version) on update no action on delete cascade
    )`);

    this.addSql(`create table if not exists adk_memories (
      app_name text not null,
      user_id text not null,
      session_id text not null,
      memory_id text not null,
      seq integer null,
      time double not null,
      create_time double not null,
      settles double null,
      expires double null,
      words blob not null,
      model text null,
      embedding blob null,
      data text not null,
      primary key (app_name, user_id, session_id, memory_id)
    )`);
    this.addSql('create index if not exists adk_memories_expires on adk_memories (app_name, expires)');

    this.addSql(`create table if not exists adk_forgotten_memories (
      app_name text not null,
      user_id text not null,
      session_id text not null,
      memory_id text not null,
      create_time double not null,
      primary key (app_name, user_id, session_id, memory_id)
    )`);

    this.addSql(`create table if not exists adk_credentials (
      app_name text not null,
      user_id text not null,
      credential_key text not null,
      update_time double not null,
      data text not null,
      primary key (app_name, user_id, credential_key)
    )`);
  }

  override down(): void {
    for (const table of INITIAL_TABLES) this.addSql(`drop table if exists adk_${table}`);
  }
}
