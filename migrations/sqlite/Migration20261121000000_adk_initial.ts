import { Migration } from '@mikro-orm/migrations';
import { creating, dropping, type TableDialect } from '../initial-tables.js';

const text = 'text';
const int = 'integer';

const SQLITE: TableDialect = {
  types: {
    ...{ key: () => text, string: () => text, json: text, text, bytes: 'blob' },
    ...{ int, unsigned: int, boolean: int, time: 'double' },
  },
  unique: () => undefined,
  index: () => undefined,
  options: '',
};

/** All tables. */
export class Migration20261121000000_adk_initial extends Migration {
  override up(): void {
    for (const sql of creating(SQLITE)) this.addSql(sql);
  }

  override down(): void {
    for (const sql of dropping(SQLITE)) this.addSql(sql);
  }
}
