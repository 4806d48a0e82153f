import { Migration } from '@mikro-orm/migrations';
import { INITIAL_TABLES } from '../initial-tables.js';
import { requireServer } from '../require-server.js';

/** All tables. The migration of MariaDB is made from this one. */
export class Migration20261121000000_adk_initial extends Migration {
  protected readonly server: 'mysql' | 'mariadb' = 'mysql';
  protected readonly collation: string = 'utf8mb4_0900_bin';

  override async up(): Promise<void> {
    const { collation } = this;
    await requireServer(this, this.server);

    this.addSql(`create table if not exists adk_app_states (
      app_name varchar(128) collate ${collation} not null,
      state_key varchar(255) collate ${collation} not null,
      value longtext not null,
      event_id varchar(191) collate ${collation} null,
      primary key (app_name, state_key)
    ) default character set utf8mb4 engine = InnoDB row_format = dynamic`);

    this.addSql(`create table if not exists adk_sessions (
      app_name varchar(128) collate ${collation} not null,
      user_id varchar(191) collate ${collation} not null,
      session_id varchar(191) collate ${collation} not null,
      incarnation varchar(36) not null,
      origin varchar(36) collate ${collation} not null,
      status varchar(9) not null default 'active',
      last_seq int not null default 0,
      first_seq int not null default 1,
      last_change bigint not null default 0,
      has_pending_calls tinyint(1) not null default false,
      create_time double not null,
      last_update_time double not null,
      lease_holder varchar(255) null,
      lease_token bigint not null default 0,
      lease_expires double null,
      deleted_at double null,
      touched_at double null,
      title varchar(255) collate ${collation} null,
      labels longtext null,
      forked_from varchar(191) collate ${collation} null,
      forked_seq int null,
      primary key (app_name, user_id, session_id),
      index adk_sessions_user_update (app_name, user_id, last_update_time, session_id),
      index adk_sessions_app_update (app_name, last_update_time, session_id, user_id)
    ) default character set utf8mb4 engine = InnoDB row_format = dynamic`);

    this.addSql(`create table if not exists adk_events (
      app_name varchar(128) collate ${collation} not null,
      user_id varchar(191) collate ${collation} not null,
      session_id varchar(191) collate ${collation} not null,
      seq int unsigned not null,
      event_id varchar(191) collate ${collation} not null,
      timestamp double not null,
      begins_turn tinyint(1) not null default false,
      data longtext null,
      superseded longtext null,
      position bigint null,
      primary key (app_name, user_id, session_id, seq),
      unique adk_events_event_id (app_name, user_id, session_id, event_id),
      index adk_events_position (position, seq),
      constraint adk_events_session foreign key (app_name, user_id, session_id)
        references adk_sessions (app_name, user_id, session_id) on update no action on delete cascade
    ) default character set utf8mb4 engine = InnoDB row_format = dynamic`);

    this.addSql(`create table if not exists adk_counters (
      name varchar(32) collate ${collation} not null,
      value bigint not null,
      primary key (name)
    ) default character set utf8mb4 engine = InnoDB row_format = dynamic`);

    this.addSql(`create table if not exists adk_event_parts (
      app_name varchar(128) collate ${collation} not null,
      user_id varchar(191) collate ${collation} not null,
      session_id varchar(191) collate ${collation} not null,
      seq int unsigned not null,
      part int unsigned not null,
      text longtext not null,
      primary key (app_name, user_id, session_id, seq, part),
      constraint adk_event_parts_session foreign key (app_name, user_id, session_id)
        references adk_sessions (app_name, user_id, session_id) on update no action on delete cascade
    ) default character set utf8mb4 engine = InnoDB row_format = dynamic`);

    this.addSql(`create table if not exists adk_open_calls (
      app_name varchar(128) collate ${collation} not null,
      user_id varchar(191) collate ${collation} not null,
      session_id varchar(191) collate ${collation} not null,
      open_until int unsigned not null,
      seq int unsigned not null,
      number int unsigned not null,
      name varchar(191) collate ${collation} not null,
      timestamp double not null,
      data longtext not null,
      primary key (app_name, user_id, session_id, open_until, seq, number),
      index adk_open_calls_app (app_name, open_until, timestamp, user_id, session_id, seq, number),
      index adk_open_calls_user (app_name, user_id, open_until, timestamp, session_id, seq, number),
      constraint adk_open_calls_session foreign key (app_name, user_id, session_id)
        references adk_sessions (app_name, user_id, session_id) on update no action on delete cascade
    ) default character set utf8mb4 engine = InnoDB row_format = dynamic`);

    this.addSql(`create table if not exists adk_session_states (
      app_name varchar(128) collate ${collation} not null,
      user_id varchar(191) collate ${collation} not null,
      session_id varchar(191) collate ${collation} not null,
      state_key varchar(255) collate ${collation} not null,
      value longtext not null,
      event_id varchar(191) collate ${collation} null,
      primary key (app_name, user_id, session_id, state_key),
      constraint adk_session_states_session foreign key (app_name, user_id, session_id)
        references adk_sessions (app_name, user_id, session_id) on update no action on delete cascade
    ) default character set utf8mb4 engine = InnoDB row_format = dynamic`);

    this.addSql(`create table if not exists adk_user_states (
      app_name varchar(128) collate ${collation} not null,
      user_id varchar(191) collate ${collation} not null,
      state_key varchar(255) collate ${collation} not null,
      value longtext not null,
      event_id varchar(191) collate ${collation} null,
      primary key (app_name, user_id, state_key)
    ) default character set utf8mb4 engine = InnoDB row_format = dynamic`);

    this.addSql(`create table if not exists adk_changes (
      app_name varchar(128) collate ${collation} not null,
      user_id varchar(191) collate ${collation} not null,
      session_id varchar(191) collate ${collation} not null,
      change_id bigint not null,
      kind varchar(16) not null,
      seq int not null,
      event_seq int null,
      time double not null,
      data longtext null,
      position bigint null,
      number bigint null,
      primary key (app_name, user_id, session_id, change_id),
      index adk_changes_number (number, change_id)
    ) default character set utf8mb4 engine = InnoDB row_format = dynamic`);

    this.addSql(`create table if not exists adk_projections (
      name varchar(191) collate ${collation} not null,
      version bigint not null,
      log_cursor longtext not null,
      update_time double not null,
      primary key (name)
    ) default character set utf8mb4 engine = InnoDB row_format = dynamic`);

    this.addSql(`create table if not exists adk_artifacts (
      app_name varchar(128) collate ${collation} not null,
      user_id varchar(191) collate ${collation} not null,
      session_id varchar(191) collate ${collation} not null,
      filename varchar(255) collate ${collation} not null,
      last_version int not null,
      update_time double not null,
      primary key (app_name, user_id, session_id, filename)
    ) default character set utf8mb4 engine = InnoDB row_format = dynamic`);

    this.addSql(`create table if not exists adk_artifact_versions (
      app_name varchar(128) collate ${collation} not null,
      user_id varchar(191) collate ${collation} not null,
      session_id varchar(191) collate ${collation} not null,
      filename varchar(255) collate ${collation} not null,
      version int not null,
      info longtext not null,
      data longblob null,
      upload int null,
      parts int null,
      create_time double not null,
      primary key (app_name, user_id, session_id, filename, version),
      constraint adk_artifact_versions_artifact foreign key (app_name, user_id, session_id, filename)
        references adk_artifacts (app_name, user_id, session_id, filename) on update no action on delete cascade
    ) default character set utf8mb4 engine = InnoDB row_format = dynamic`);

    this.addSql(`create table if not exists adk_artifact_parts (
      app_name varchar(128) collate ${collation} not null,
      user_id varchar(191) collate ${collation} not null,
      session_id varchar(191) collate ${collation} not null,
      filename varchar(255) collate ${collation} not null,
      version int not null,
      part int unsigned not null,
      data longblob not null,
      primary key (app_name, user_id, session_id, filename, version, part),
      constraint adk_artifact_parts_version foreign key (app_name, user_id, session_id, filename, version)
        references adk_artifact_versions (app_name, user_id, session_id, filename, version) on update no action on delete cascade
    ) default character set utf8mb4 engine = InnoDB row_format = dynamic`);

    this.addSql(`create table if not exists adk_memories (
      app_name varchar(128) collate ${collation} not null,
      user_id varchar(191) collate ${collation} not null,
      session_id varchar(191) collate ${collation} not null,
      memory_id varchar(191) collate ${collation} not null,
      seq int null,
      time double not null,
      create_time double not null,
      settles double null,
      expires double null,
      words longblob not null,
      model longtext null,
      embedding longblob null,
      data longtext not null,
      primary key (app_name, user_id, session_id, memory_id),
      index adk_memories_expires (app_name, expires)
    ) default character set utf8mb4 engine = InnoDB row_format = dynamic`);

    this.addSql(`create table if not exists adk_forgotten_memories (
      app_name varchar(128) collate ${collation} not null,
      user_id varchar(191) collate ${collation} not null,
      session_id varchar(191) collate ${collation} not null,
      memory_id varchar(191) collate ${collation} not null,
      create_time double not null,
      primary key (app_name, user_id, session_id, memory_id)
    ) default character set utf8mb4 engine = InnoDB row_format = dynamic`);

    this.addSql(`create table if not exists adk_credentials (
      app_name varchar(128) collate ${collation} not null,
      user_id varchar(191) collate ${collation} not null,
      credential_key varchar(255) collate ${collation} not null,
      update_time double not null,
      data longtext not null,
      primary key (app_name, user_id, credential_key)
    ) default character set utf8mb4 engine = InnoDB row_format = dynamic`);
  }

  override down(): void {
    for (const table of INITIAL_TABLES) this.addSql(`drop table if exists adk_${table}`);
  }
}
