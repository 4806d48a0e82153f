import { TRANSACTION_LOCKS } from '../lock.js';
import { LocatedMigration } from '../located-migration.js';

/** Trimmed and deleted sessions, titles and labels, and the changes that the event log emits. */
export class Migration20261122000000_adk_operations extends LocatedMigration {
  override async up(): Promise<void> {
    // A transaction that reads first fails when it writes and another process has written in between.
    for (const sql of TRANSACTION_LOCKS.sqlite) await this.execute(sql);

    await this.addMissingColumns('adk_sessions', 'pragma table_info(adk_sessions)', {
      first_seq: 'integer not null default 1',
      deleted_at: 'double null',
      title: 'text null',
      labels: 'text null',
    });

    this.addSql(`create table if not exists adk_changes (
      change_id integer not null primary key autoincrement,
      app_name text not null,
      user_id text not null,
      session_id text not null,
      kind text not null,
      seq integer not null,
      event_seq integer null,
      time double not null,
      data text null,
      position bigint null,
      number bigint null
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
  }

  override down(): void {
    this.addSql('drop table if exists adk_changes');
    // Without the column soft-deleted sessions would be visible again.
    this.addSql('delete from adk_sessions where deleted_at is not null');
    for (const column of ['first_seq', 'deleted_at', 'title', 'labels']) {
      this.addSql(`alter table adk_sessions drop column ${column}`);
    }
  }
}
