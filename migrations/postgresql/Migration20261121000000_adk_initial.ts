import { Migration } from '@mikro-orm/migrations';
import { TRANSACTION_LOCKS } from '../lock.js';
import { requireServer } from '../require-server.js';

/** The tables of version 0.1. */
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
      last_seq int not null default 0,
      create_time double precision not null,
      last_update_time double precision not null,
      lease_holder varchar(255) null,
      lease_token bigint not null default 0,
      lease_expires double precision null,
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
      data json null,
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
      constraint adk_event_parts_event foreign key (app_name, user_id, session_id, seq)
        references adk_events (app_name, user_id, session_id, seq) on update no action on delete cascade
    )`);

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
  }

  override down(): void {
    this.addSql('drop table if exists adk_counters');
    this.addSql('drop table if exists adk_user_states');
    this.addSql('drop table if exists adk_app_states');
    this.addSql('drop table if exists adk_session_states');
    this.addSql('drop table if exists adk_event_parts');
    this.addSql('drop table if exists adk_events');
    this.addSql('drop table if exists adk_sessions');
  }
}
