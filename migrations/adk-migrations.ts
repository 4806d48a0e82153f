import type { Migration } from '@mikro-orm/migrations';
import { TRAITS, quotedName, type DialectName } from '../entities/dialect-name.js';
import type { AdkEntityOptions } from '../entities/index.js';
import { DEFAULT_PREFIX, checkEntityOptions } from '../entities/naming.js';
import { DIALECTS } from '../src/database/dialects/resolve.js';
import { refuseConnection } from '../src/database/dialects/settings.js';
import { refuseWildcard } from '../src/database/sql/tables.js';
import { oneOf } from '../src/model/arguments.js';
import { SchemaError } from '../src/model/errors.js';
import * as mariadb from './mariadb.js';
import * as mysql from './mysql.js';
import * as postgresql from './postgresql.js';
import { refuseDroppingConfig } from './refuse-config.js';
import * as sqlite from './sqlite.js';
import { adkTables, checkTables, locationFor, refuseDifferent, type Query } from './tables.js';

type MigrationArguments = ConstructorParameters<typeof Migration>;

/** Has `up`, which subclasses call; MikroORM declares it as abstract. */
declare class BundledMigration extends Migration {
  override up(): Promise<void> | void;
}

type BundledClass = new (...args: MigrationArguments) => BundledMigration;

/** An entry of MikroORM's `migrations.migrationsList`. */
export interface AdkMigration {
  /** Its name in MikroORM's table of migrations. */
  name: string;
  class: new (...args: ConstructorParameters<typeof Migration>) => Migration;
}

const MIGRATIONS: Record<DialectName, Record<string, BundledClass>> = { sqlite, postgresql, mysql, mariadb };

const checkDialect = oneOf(...Object.keys(MIGRATIONS));

/**
 * The migrations of this package, for `migrations: { migrationsList: [...adkMigrations('postgresql'), ...yours] }` and
 * `extensions: [AdkMigrator]`. Each throws `SchemaError` before it changes anything, if the next `migration:create` would drop the
 * tables, or tables with the same names are another program's.
 *
 * @param dialect the database they are for.
 * @param options where the tables live; the same as for `adkEntities`. A schema that does not exist is created, and
 *   stays when the migrations are reverted.
 * @returns the migrations, oldest first.
 * @throws InvalidArgumentError if the dialect or an option is unknown.
 * @throws SchemaError for a schema on SQLite, or the schema `'*'`.
 */
export function adkMigrations(dialect: DialectName, options: AdkEntityOptions = {}): AdkMigration[] {
  checkDialect(dialect, 'The dialect of adkMigrations');
  options = checkEntityOptions(options, 'The options of adkMigrations');
  if (options.schema && !TRAITS[dialect].hasSchemas) {
    throw new SchemaError('SQLite has no schemas. Use a tablePrefix instead.');
  }
  refuseWildcard(options.schema);
  const suffix = nameOf(options);
  return Object.entries(MIGRATIONS[dialect])
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, migration], index) => ({
      name: name + suffix,
      class: located(migration, dialect, options, { isFirst: index === 0 }),
    }));
}

/** Added to the name of a migration, since sets of tables with different schemas and prefixes share one table of migrations. */
function nameOf({ schema, tablePrefix = DEFAULT_PREFIX }: AdkEntityOptions): string {
  if (!schema && tablePrefix === DEFAULT_PREFIX) return '';
  return `[${schema ? `${schema}.` : ''}${tablePrefix}]`;
}

/** A migration whose SQL has the schema and prefix of `options`. */
function located(
  Bundled: BundledClass,
  dialect: DialectName,
  options: AdkEntityOptions,
  { isFirst }: { isFirst: boolean },
): AdkMigration['class'] {
  const { tablePrefix = DEFAULT_PREFIX } = options;
  const quoted = (name: string) => quotedName(TRAITS[dialect].quote, name);

  return class extends Bundled {
    readonly #schema: string | undefined;

    constructor(...args: MigrationArguments) {
      super(...args);
      this.#schema = locationFor(args[1], { dialect, ...options }).schema;
    }

    override async up(): Promise<void> {
      refuseDroppingConfig(this.config, this.driver.getMetadata(), options);
      // A MySQL server behind the driver of MariaDB would not know the collation, and not say why. On SQLite foreign keys are off here.
      const read = (sql: string) => this.execute(sql) as Promise<object[]>;
      if (dialect !== 'sqlite') await refuseConnection(DIALECTS[dialect].connections, read);
      if (isFirst) await this.#refuseStrangers();
      // PostgreSQL requires the right to create schemas even if this one exists, so look first.
      if (this.#schema && !(await this.#hasSchema(this.#schema))) {
        super.addSql(`create schema if not exists ${quoted(this.#schema)}`);
      }
      await super.up();
    }

    /**
     * `create table if not exists` would ignore another program's table with the same name, and a later statement would fail.
     *
     * @throws SchemaError if a table has other columns.
     */
    async #refuseStrangers(): Promise<void> {
      const query: Query = async (sql, values) => (await this.execute(sql, values)) as { name: string }[];
      refuseDifferent(await checkTables(query, locationFor(this.config, { dialect, ...options })));
    }

    async #hasSchema(schema: string): Promise<boolean> {
      const rows = await this.execute('select 1 from information_schema.schemata where schema_name = ?', [schema]);
      return rows.length > 0;
    }

    override addSql(sql: Parameters<Migration['addSql']>[0]): void {
      super.addSql(typeof sql === 'string' ? this.#withLocation(sql) : sql);
    }

    /** Replaces `adk_…` in a statement. */
    #withLocation(sql: string): string {
      return sql.replace(/(["`]?)\badk_(\w+)\1/g, (_match, _quote, suffix: string) => {
        const name = quoted(tablePrefix + suffix);
        // An index is in the schema of its table, and its name must not contain the schema.
        return this.#schema && adkTables().some((table) => table.suffix === suffix)
          ? `${quoted(this.#schema)}.${name}`
          : name;
      });
    }
  };
}
