import { Migration } from '@mikro-orm/migrations';
import { requireServer } from '../require-server.js';

/** How far each `SessionProjection` has read the event log. */
export class Migration20261123000000_adk_projections extends Migration {
  override async up(): Promise<void> {
    await requireServer(this, 'mysql');

    this.addSql(`create table if not exists adk_projections (
      name varchar(191) collate utf8mb4_0900_bin not null,
      version bigint not null,
      log_cursor longtext not null,
      update_time double not null,
      primary key (name)
    ) default character set utf8mb4 engine = InnoDB row_format = dynamic`);
  }

  override down(): void {
    this.addSql('drop table if exists adk_projections');
  }
}
