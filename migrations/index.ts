import type { Configuration } from '@mikro-orm/core';
import type { Migration } from '@mikro-orm/migrations';
import type { DialectName } from '../entities/dialect-name.js';
import { adkEntities, type AdkEntityOptions } from '../entities/index.js';
import { DEFAULT_PREFIX } from '../entities/naming.js';
import { SchemaError } from '../src/errors.js';
import * as mariadb from './mariadb.js';
import * as mysql from './mysql.js';
import * as postgresql from './postgresql.js';
import * as sqlite from './sqlite.js';

export type { DialectName } from '../entities/dialect-name.js';
export type { AdkEntityOptions } from '../entities/index.js';

type MigrationArguments = ConstructorParameters<typeof Migration>;

/** MikroORM declares `up` abstract, which a subclass of an unknown class could not call. */
declare class BundledMigration extends Migration {
  override up(): Promise<void> | void;
}

type BundledClass = new (...args: MigrationArguments) => BundledMigration;

/** An entry of MikroORM's `migrations.migrationsList`. */
export interface AdkMigration {
  /** What MikroORM's table of migrations remembers. */
  name: string;
  class: new (...args: MigrationArguments) => Migration;
}

const MIGRATIONS: Record<DialectName, Record<string, BundledClass>> = { sqlite, postgresql, mysql, mariadb };

const TABLES = new Set<string | undefined>(adkEntities().map((entity) => entity.meta.tableName));

/**
 * The migrations of this package, for `migrations: { migrationsList: [...adkMigrations('postgresql'), ...yours] }`.
 *
 * @param dialect the database they are for.
 * @param options where the tables live; the same as for `adkEntities`. A schema that does not exist is created, and
 *   stays when the migrations are reverted.
 * @returns the migrations, oldest first.
 * @throws SchemaError when a schema is asked for on SQLite.
 */
export function adkMigrations(dialect: DialectName, options: AdkEntityOptions = {}): AdkMigration[] {
  if (dialect === 'sqlite' && options.schema) {
    throw new SchemaError('SQLite has no schemas. Use a tablePrefix instead.');
  }
  const place = placeOf(options);
  return Object.entries(MIGRATIONS[dialect])
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, migration]) => ({ name: name + place, class: placed(migration, dialect, options) }));
}

/** Keeps apart, in one table of migrations, sets of tables that live in different places of one database. */
function placeOf({ schema, tablePrefix = DEFAULT_PREFIX }: AdkEntityOptions): string {
  if (!schema && tablePrefix === DEFAULT_PREFIX) return '';
  return `[${schema ? `${schema}.` : ''}${tablePrefix}]`;
}

/** The migration with another schema and prefix than the ones its SQL is written with. */
function placed(
  Bundled: BundledClass,
  dialect: DialectName,
  { schema: ownSchema, tablePrefix = DEFAULT_PREFIX }: AdkEntityOptions,
): AdkMigration['class'] {
  const quote = dialect === 'postgresql' ? '"' : '`';
  const quoted = (name: string) => quote + name.replaceAll(quote, quote + quote) + quote;

  return class extends Bundled {
    readonly #schema: string | undefined;

    constructor(...args: MigrationArguments) {
      super(...args);
      this.#schema = ownSchema ?? configuredSchema(args[1], dialect);
    }

    override async up(): Promise<void> {
      // Asked first: PostgreSQL wants the right to create schemas even for one that exists.
      if (this.#schema && !(await this.#hasSchema(this.#schema))) {
        super.addSql(`create schema if not exists ${quoted(this.#schema)}`);
      }
      await super.up();
    }

    async #hasSchema(schema: string): Promise<boolean> {
      const rows = await this.execute('select 1 from information_schema.schemata where schema_name = ?', [schema]);
      return rows.length > 0;
    }

    override addSql(sql: Parameters<Migration['addSql']>[0]): void {
      super.addSql(typeof sql === 'string' ? this.#inPlace(sql) : sql);
    }

    #inPlace(sql: string): string {
      return sql.replace(/(["`]?)\badk_(\w+)\1/g, (_match, _quote, suffix: string) => {
        const name = quoted(tablePrefix + suffix);
        // An index lives in its table's schema and must not name it.
        return this.#schema && TABLES.has(DEFAULT_PREFIX + suffix) ? `${quoted(this.#schema)}.${name}` : name;
      });
    }
  };
}

/** Where MikroORM looks for tables of entities without a schema of their own. */
function configuredSchema(config: Configuration, dialect: DialectName): string | undefined {
  const schema = config.get('schema');
  return dialect === 'sqlite' || schema === '*' ? undefined : schema;
}
