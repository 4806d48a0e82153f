import { Migration } from '@mikro-orm/migrations';
import { INITIAL_TABLES } from '../initial-tables.js';
import { TRANSACTION_LOCKS } from '../lock.js';
import { requireServer } from '../require-server.js';

/** All tables. */
export class Migration20261121000000_adk_initial extends Migration {
  override async up(): Promise<void> {
    await requireServer(this, 'postgresql');
    // Two `create table if not exists` of one table at once can fail with a unique violation in the catalog.
    for (const sql of TRANSACTION_LOCKS.postgresql) await this.execute(sql);

    this.addSql(`create table if not exists adk_app_states (
      app_name varchar(128) collate "C" not null,
      state_key varchar(255) collate "C" not null,
      value json not null,
      event_id varchar(191) collate "C" null,
      constraint adk_app_states_pkey primary key (app_name, state_key)
    )`);

    this.addSql(`create table if not exists adk_sessions (
      app_name varchar(128) collate "C" not null,
      user_id varchar(191) collate "C" not null,
      session_id varchar(191) collate "C" not null,
      incarnation varchar(36) not null,
      origin varchar(36) collate "C" not null,
      status varchar(9) not null default 'active',
      last_seq int not null default 0,
      first_seq int not null default 1,
      last_change bigint not null default 0,
      has_pending_calls boolean not null default false,
      create_time double precision not null,
      last_update_time double precision not null,
      lease_holder varchar(255) null,
      lease_token bigint not null default 0,
      lease_expires double precision null,
      deleted_at double precision null,
      touched_at double precision null,
      title varchar(255) collate "C" null,
      labels json null,
      forked_from varchar(191) collate "C" null,
      forked_seq int null,
      constraint adk_sessions_pkey primary key (app_name, user_id, session_id)
    )`);
    this.addSql(`create index if not exists adk_sessions_user_update
      on adk_sessions (app_name, user_id, last_update_time, session_id)`);
    this.addSql(`create index if not exists adk_sessions_app_update
      on adk_sessions (app_name, last_update_time, session_id, user_id)`);

    this.addSql(`create table if not exists adk_events (
      app_name varchar(128) collate "C" not null,
      user_id varchar(191) collate "C" not null,
      session_id varchar(191) collate "C" not null,
      seq int not null,
      event_id varchar(191) collate "C" not null,
      timestamp double precision not null,
      begins_turn boolean not null default false,
      data json null,
      superseded text null,
      position bigint null,
      constraint adk_events_pkey primary key (app_name, user_id, session_id, seq),
      constraint adk_events_event_id unique (app_name, user_id, session_id, event_id),
      constraint adk_events_session foreign key (app_name, user_id, session_id)
        references adk_sessions (app_name, user_id, session_id) on update no action on delete cascade
    )`);
    this.addSql(`create index if not exists adk_events_position
      on adk_events (position, seq)`);

    this.addSql(`create table if not exists adk_counters (
      name varchar(32) collate "C" not null,
      value bigint not null,
      constraint adk_counters_pkey primary key (name)
    )`);

    this.addSql(`create table if not exists adk_event_parts (
      app_name varchar(128) collate "C" not null,
      user_id varchar(191) collate "C" not null,
      session_id varchar(191) collate "C" not null,
      seq int not null,
      part int not null,
      text text not null,
      constraint adk_event_parts_pkey primary key (app_name, user_id, session_id, seq, part),
      constraint adk_event_parts_session foreign key (app_name, user_id, session_id)
        references adk_sessions (app_name, user_id, session_id) on update no action on delete cascade
    )`);

    this.addSql(`create table if not exists adk_open_calls (
      app_name varchar(128) collate "C" not null,
      user_id varchar(191) collate "C" not null,
      session_id varchar(191) collate "C" not null,
      open_until int not null,
      seq int not null,
      number int not null,
      name varchar(191) collate "C" not null,
      timestamp double precision not null,
      data json not null,
      constraint adk_open_calls_pkey primary key (app_name, user_id, session_id, open_until, seq, number),
      constraint adk_open_calls_session foreign key (app_name, user_id, session_id)
        references adk_sessions (app_name, user_id, session_id) on update no action on delete cascade
    )`);
    this.addSql(`create index if not exists adk_open_calls_app
      on adk_open_calls (app_name, open_until, timestamp, user_id, session_id, seq, number)`);
    this.addSql(`create index if not exists adk_open_calls_user
      on adk_open_calls (app_name, user_id, open_until, timestamp, session_id, seq, number)`);

    this.addSql(`create table if not exists adk_session_states (
      app_name varchar(128) collate "C" not null,
      user_id varchar(191) collate "C" not null,
      session_id varchar(191) collate "C" not null,
      state_key varchar(255) collate "C" not null,
      value json not null,
      event_id varchar(191) collate "C" null,
      constraint adk_session_states_pkey primary key (app_name, user_id, session_id, state_key),
      constraint adk_session_states_session foreign key (app_name, user_id, session_id)
        references adk_sessions (app_name, user_id, session_id) on update no action on delete cascade
    )`);

    this.addSql(`create table if not exists adk_user_states (
      app_name varchar(128) collate "C" not null,
      user_id varchar(191) collate "C" not null,
      state_key varchar(255) collate "C" not null,
      value json not null,
      event_id varchar(191) collate "C" null,
      constraint adk_user_states_pkey primary key (app_name, user_id, state_key)
    )`);

    this.addSql(`create table if not exists adk_changes (
      app_name varchar(128) collate "C" not null,
      user_id varchar(191) collate "C" not null,
      session_id varchar(191) collate "C" not null,
      change_id bigint not null,
      kind varchar(16) not null,
      seq int not null,
      event_seq int null,
      time double precision not null,
      data json null,
      position bigint null,
      number bigint null,
      constraint adk_changes_pkey primary key (app_name, user_id, session_id, change_id)
    )`);
    this.addSql('create index if not exists adk_changes_number on adk_changes (number, change_id)');

    this.addSql(`create table if not exists adk_projections (
      name varchar(191) collate "C" not null,
      version bigint not null,
      log_cursor text not null,
      update_time double precision not null,
      constraint adk_projections_pkey primary key (name)
    )`);

    this.addSql(`create table if not exists adk_artifacts (
      app_name varchar(128) collate "C" not null,
      user_id varchar(191) collate "C" not null,
      session_id varchar(191) collate "C" not null,
      filename varchar(255) collate "C" not null,
      last_version int not null,
      update_time double precision not null,
      constraint adk_artifacts_pkey primary key (app_name, user_id, session_id, filename)
    )`);

    this.addSql(`create table if not exists adk_artifact_versions (
      app_name varchar(128) collate "C" not null,
      user_id varchar(191) collate "C" not null,
      session_id varchar(191) collate "C" not null,
      filename varchar(255) collate "C" not null,
      version int not null,
      info json not null,
      data bytea null,
      upload int null,
      parts int null,
      create_time double precision not null,
      constraint adk_artifact_versions_pkey primary key (app_name, user_id, session_id, filename, version),
      constraint adk_artifact_versions_artifact foreign key (app_name, user_id, session_id, filename)
        references adk_artifacts (app_name, user_id, session_id, filename) on update no action on delete cascade
    )`);

    this.addSql(`create table if not exists adk_artifact_parts (
      app_name varchar(128) collate "C" not null,
      user_id varchar(191) collate "C" not null,
      session_id varchar(191) collate "C" not null,
      filename varchar(255) collate "C" not null,
      version int not null,
      part int not null,
      data bytea not null,
      constraint adk_artifact_parts_pkey primary key (app_name, user_id, session_id, filename, version, part),
      constraint adk_artifact_parts_version foreign key (app_name, user_id, session_id, filename, version)
        references adk_artifact_versions (app_name, user_id, session_id, filename, version) on update no action on delete cascade
    )`);
    // The server would try to compress what is mostly compressed already.
    for (const table of ['adk_artifact_versions', 'adk_artifact_parts'])
      this.addSql(`alter table ${table} alter column data set storage external`);

    this.addSql(`create table if not exists adk_memories (
      app_name varchar(128) collate "C" not null,
      user_id varchar(191) collate "C" not null,
      session_id varchar(191) collate "C" not null,
      memory_id varchar(191) collate "C" not null,
      seq int null,
      time double precision not null,
      create_time double precision not null,
      settles double precision null,
      expires double precision null,
      words bytea not null,
      model text null,
      embedding bytea null,
      data json not null,
      constraint adk_memories_pkey primary key (app_name, user_id, session_id, memory_id)
    )`);
    this.addSql('create index if not exists adk_memories_expires on adk_memories (app_name, expires)');
    // The server would try to compress what it cannot.
    for (const column of ['words', 'embedding'])
      this.addSql(`alter table adk_memories alter column ${column} set storage external`);

    this.addSql(`create table if not exists adk_forgotten_memories (
      app_name varchar(128) collate "C" not null,
      user_id varchar(191) collate "C" not null,
      session_id varchar(191) collate "C" not null,
      memory_id varchar(191) collate "C" not null,
      create_time double precision not null,
      constraint adk_forgotten_memories_pkey primary key (app_name, user_id, session_id, memory_id)
    )`);

    this.addSql(`create table if not exists adk_credentials (
      app_name varchar(128) collate "C" not null,
      user_id varchar(191) collate "C" not null,
      credential_key varchar(255) collate "C" not null,
      update_time double precision not null,
      data json not null,
      constraint adk_credentials_pkey primary key (app_name, user_id, credential_key)
    )`);
  }

  override down(): void {
    for (const table of INITIAL_TABLES) this.addSql(`drop table if exists adk_${table}`);
  }
}
