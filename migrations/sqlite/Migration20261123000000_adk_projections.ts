import { Migration } from '@mikro-orm/migrations';
import { TRANSACTION_LOCKS } from '../lock.js';

/** How far each `SessionProjection` has read the event log. */
export class Migration20261123000000_adk_projections extends Migration {
  override async up(): Promise<void> {
    // A transaction that reads first fails when it writes and another process has written in between.
    for (const sql of TRANSACTION_LOCKS.sqlite) await this.execute(sql);

    this.addSql(`create table if not exists adk_projections (
      name text not null primary key,
      version bigint not null,
      log_cursor text not null,
      update_time double not null
    )`);
  }

  override down(): void {
    this.addSql('drop table if exists adk_projections');
  }
}
