import { Migration } from '@mikro-orm/migrations';
import { creating, dropping, type TableDialect } from '../initial-tables.js';

/** All tables. The migration of MariaDB is made from this one. */
export class Migration20261121000000_adk_initial extends Migration {
  protected readonly collation: string = 'utf8mb4_0900_bin';

  override up(): void {
    for (const sql of creating(this.#dialect)) this.addSql(sql);
  }

  override down(): void {
    for (const sql of dropping(this.#dialect)) this.addSql(sql);
  }

  get #dialect(): TableDialect {
    const key = (length: number) => `varchar(${length}) collate ${this.collation}`;
    const string = (length: number) => `varchar(${length})`;
    const numbers = { int: 'int', unsigned: 'int unsigned', time: 'double', boolean: 'tinyint(1)' };
    return {
      types: { key, string, ...numbers, json: 'longtext', text: 'longtext', bytes: 'longblob' },
      // Both are in the table: these servers have no `create index if not exists`.
      unique: (name) => `unique ${name}`,
      index: (name) => `index ${name}`,
      options: ' default character set utf8mb4 engine = InnoDB row_format = dynamic',
    };
  }
}
