import { Migration } from '@mikro-orm/migrations';
import { TRANSACTION_LOCKS } from '../lock.js';
import { requireServer } from '../require-server.js';

/** How far each `SessionProjection` has read the event log. */
export class Migration20261123000000_adk_projections extends Migration {
  override async up(): Promise<void> {
    await requireServer(this, 'postgresql');
    for (const sql of TRANSACTION_LOCKS.postgresql) await this.execute(sql);

    this.addSql(`create table if not exists adk_projections (
      name varchar(191) collate "C" not null,
      version bigint not null,
      log_cursor text not null,
      update_time double precision not null,
      constraint adk_projections_pkey primary key (name)
    )`);
  }

  override down(): void {
    this.addSql('drop table if exists adk_projections');
  }
}
