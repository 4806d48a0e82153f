import { Migration } from '@mikro-orm/migrations';
import { TRANSACTION_LOCKS } from '../lock.js';
import { requireServer } from '../require-server.js';

/** Trimmed and deleted sessions, titles and labels, and the changes that the event log emits. */
export class Migration20261122000000_adk_operations extends Migration {
  override async up(): Promise<void> {
    await requireServer(this, 'postgresql');
    for (const sql of TRANSACTION_LOCKS.postgresql) await this.execute(sql);

    this.addSql(`create table if not exists adk_changes (
      change_id bigserial,
      app_name varchar(128) collate "C" not null,
      user_id varchar(191) collate "C" not null,
      session_id varchar(191) collate "C" not null,
      kind varchar(16) not null,
      seq int not null,
      event_seq int null,
      time double precision not null,
      data json null,
      position bigint null,
      number bigint null,
      constraint adk_changes_pkey primary key (change_id)
    )`);
    this.addSql('create index if not exists adk_changes_number on adk_changes (number, change_id)');
    this.addSql(`create index if not exists adk_changes_session
      on adk_changes (app_name, user_id, session_id)`);

    // For what was there before the log recorded changes, readers take the tables (contract J2).
    this.addSql(`insert into adk_changes (app_name, user_id, session_id, kind, seq, time)
      select app_name, user_id, session_id, 'created', 0, create_time from adk_sessions
        where not exists (select 1 from adk_changes)
      union all select distinct app_name, user_id, '', 'state', 0, 0 from adk_user_states
        where not exists (select 1 from adk_changes)
      union all select distinct app_name, '', '', 'state', 0, 0 from adk_app_states
        where not exists (select 1 from adk_changes)`);

    // Last, since appends wait from here to the commit.
    this.addSql(`alter table adk_sessions
      add column if not exists first_seq int not null default 1,
      add column if not exists deleted_at double precision null,
      add column if not exists title varchar(255) collate "C" null,
      add column if not exists labels json null`);
  }

  override down(): void {
    this.addSql('drop table if exists adk_changes');
    // Without the column soft-deleted sessions would be visible again.
    this.addSql('delete from adk_sessions where deleted_at is not null');
    this.addSql(
      'alter table adk_sessions drop column first_seq, drop column deleted_at, drop column title, drop column labels',
    );
  }
}
