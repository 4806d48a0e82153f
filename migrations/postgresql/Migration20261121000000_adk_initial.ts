import { Migration } from '@mikro-orm/migrations';
import { creating, dropping, type TableDialect } from '../initial-tables.js';
import { TRANSACTION_LOCKS } from '../lock.js';

const POSTGRESQL: TableDialect = {
  types: {
    key: (length) => `varchar(${length}) collate "C"`,
    string: (length) => `varchar(${length})`,
    ...{ int: 'int', unsigned: 'int', time: 'double precision', boolean: 'boolean' },
    ...{ json: 'json', text: 'text', bytes: 'bytea' },
  },
  unique: (name) => `constraint ${name} unique`,
  index: () => undefined,
  options: '',
};

const BYTES = { adk_artifact_versions: ['data'], adk_artifact_parts: ['data'], adk_memories: ['words', 'embedding'] };

/** All tables. */
export class Migration20261121000000_adk_initial extends Migration {
  override async up(): Promise<void> {
    // Two `create table if not exists` of one table at once can fail with a unique violation in the catalog.
    for (const sql of TRANSACTION_LOCKS.postgresql) await this.execute(sql);
    for (const sql of creating(POSTGRESQL)) this.addSql(sql);
    // The server would try to compress what cannot be compressed, or is already.
    for (const [table, columns] of Object.entries(BYTES))
      for (const column of columns) this.addSql(`alter table ${table} alter column ${column} set storage external`);
  }

  override down(): void {
    for (const sql of dropping(POSTGRESQL)) this.addSql(sql);
  }
}
