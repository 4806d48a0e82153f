import { LocatedMigration } from '../located-migration.js';
import { requireServer } from '../require-server.js';

/** Trimmed and deleted sessions, titles and labels, and the changes that the event log emits. */
export class Migration20261122000000_adk_operations extends LocatedMigration {
  override async up(): Promise<void> {
    await requireServer(this, 'mysql');
    for (const column of [
      'first_seq int not null default 1',
      'deleted_at double null',
      'title varchar(255) collate utf8mb4_0900_bin null',
      'labels longtext null',
    ]) {
      await this.executeUnless('ER_DUP_FIELDNAME', `alter table adk_sessions add column ${column}`);
    }

    this.addSql(`create table if not exists adk_changes (
      change_id bigint unsigned not null auto_increment,
      app_name varchar(128) collate utf8mb4_0900_bin not null,
      user_id varchar(191) collate utf8mb4_0900_bin not null,
      session_id varchar(191) collate utf8mb4_0900_bin not null,
      kind varchar(16) not null,
      seq int not null,
      event_seq int null,
      time double not null,
      data longtext null,
      position bigint null,
      number bigint null,
      primary key (change_id),
      index adk_changes_number (number, change_id),
      index adk_changes_session (app_name, user_id, session_id)
    ) default character set utf8mb4 engine = InnoDB row_format = dynamic`);

    // For what was there before the log recorded changes, readers take the tables (contract J2). With the default isolation level
    // the statement would lock all sessions until its end, and appends would wait; a binary log of statements needs that.
    const [format] = (await this.execute("show variables like 'binlog_format'")) as { Value: string }[];
    if (format?.Value !== 'STATEMENT') this.addSql('set transaction isolation level read committed');
    this.addSql('start transaction');
    // Processes that come here at once wait for this row, or one of them fails at its commit on another node of a cluster:
    // both would find no change, and insert all of them.
    this.addSql("insert into adk_counters (name, value) values ('first changes', 0)");
    this.addSql("delete from adk_counters where name = 'first changes'");
    this.addSql(`insert into adk_changes (app_name, user_id, session_id, kind, seq, time)
      select app_name, user_id, session_id, 'created', 0, create_time from adk_sessions
        where not exists (select 1 from adk_changes)
      union all select distinct app_name, user_id, '', 'state', 0, 0 from adk_user_states
        where not exists (select 1 from adk_changes)
      union all select distinct app_name, '', '', 'state', 0, 0 from adk_app_states
        where not exists (select 1 from adk_changes)`);
    this.addSql('commit');
  }

  override down(): void {
    this.addSql('drop table if exists adk_changes');
    // Without the column soft-deleted sessions would be visible again.
    this.addSql('delete from adk_sessions where deleted_at is not null');
    this.addSql(`alter table adk_sessions
      drop column first_seq, drop column deleted_at, drop column title, drop column labels`);
  }
}
