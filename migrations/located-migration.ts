import { Migration } from '@mikro-orm/migrations';
import { driverCodeOf } from '../src/model/errors.js';

/** A migration whose statements have no `if not exists` on its database, and may be repeated nonetheless. */
export abstract class LocatedMigration extends Migration {
  /** Replaces `adk_…` in a statement by names with the host's schema and prefix; `adkMigrations` overrides it. */
  protected withLocation(sql: string): string {
    return sql;
  }

  /** Adds the columns that are missing. Nobody else may be at it. */
  protected async addMissingColumns(
    table: string,
    select: string,
    columns: Readonly<Record<string, string>>,
  ): Promise<void> {
    const rows = (await this.execute(this.withLocation(select))) as Readonly<Record<string, unknown>>[];
    const present = new Set(rows.map((row) => row['name']));
    for (const [name, type] of Object.entries(columns)) {
      if (!present.has(name)) this.addSql(`alter table ${table} add column ${name} ${type}`);
    }
  }

  /**
   * Runs a statement at once. Somebody else may be doing the same.
   *
   * @param done the driver's code where it was done before.
   */
  protected async executeUnless(done: string, sql: string): Promise<void> {
    try {
      await this.execute(this.withLocation(sql));
    } catch (error) {
      if (driverCodeOf(error) !== done) throw error;
    }
  }
}
