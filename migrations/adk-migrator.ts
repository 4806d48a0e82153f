import type { MikroORM } from '@mikro-orm/core';
import { Migrator } from '@mikro-orm/migrations';
import { dialectName } from '../entities/dialect-name.js';
import { SchemaError } from '../src/model/errors.js';
import { adkMigrations } from './adk-migrations.js';
import { LEAVES_OUT_ADK_TABLES, isSkipped } from './refuse-config.js';
import {
  lookAtTables,
  placeFor,
  placeOf,
  refuseDifferent,
  refuseGone,
  refuseMissing,
  tableNames,
  type Place,
} from './tables.js';

type MigratorEntityManager = ConstructorParameters<typeof Migrator>[0];

/** The part of MikroORM's `DatabaseSchema` that is used here; its package is no dependency of ours. */
interface Schema {
  getTables(): { name: string }[];
}

/**
 * MikroORM's `Migrator`, for `extensions: [AdkMigrator]`. It leaves the tables of this package to the migrations of this
 * package: `migration:create` writes of the host's alone, and the snapshot holds the host's alone. `migration:up` and
 * `migration:check` look whether ours are there, and throw `SchemaError` when they are not.
 */
export const AdkMigrator: typeof Migrator = class AdkMigrator extends Migrator {
  readonly [LEAVES_OUT_ADK_TABLES] = true;
  readonly #em: MigratorEntityManager;
  readonly #place: Place;

  constructor(em: MigratorEntityManager) {
    super(em);
    const dialect = dialectName(em.getPlatform());
    if (!dialect) throw new SchemaError('adk-mikro-orm runs on SQLite, PostgreSQL, MySQL and MariaDB only.');
    this.#em = em;
    this.#place = { dialect, ...placeOf(em.getMetadata()) };
  }

  static override register(orm: MikroORM): void {
    orm.config.registerExtension('@mikro-orm/migrator', () => new AdkMigrator(orm.em as MigratorEntityManager));
  }

  override createMigration(...args: Parameters<Migrator['createMigration']>) {
    return this.#withoutOurTables(() => super.createMigration(...args));
  }

  override createInitialMigration(...args: Parameters<Migrator['createInitialMigration']>) {
    return this.#withoutOurTables(() => super.createInitialMigration(...args));
  }

  override async checkMigrationNeeded() {
    const needed = await this.#withoutOurTables(() => super.checkMigrationNeeded());
    // With a snapshot the check needs no database.
    if ((await this.#em.getConnection().checkConnection()).ok) {
      const findings = await this.#look();
      refuseMissing(findings);
      refuseDifferent(findings);
    }
    return needed;
  }

  override async up(options?: Parameters<Migrator['up']>[0]) {
    await this.#refuseDamage();
    const applied = await super.up(options);
    await this.#refuseDamage();
    return applied;
  }

  protected override getSchemaFromSnapshot() {
    const schema = super.getSchemaFromSnapshot();
    if (schema) this.#leaveOut(schema);
    return schema;
  }

  /** @param schema what the database holds, after `up` and `down`. */
  protected override async storeCurrentSchema(schema?: Parameters<Migrator['storeCurrentSchema']>[0]) {
    if (schema) this.#leaveOut(schema);
    await super.storeCurrentSchema(schema);
  }

  /** Not for longer than needed: `orm.schema` reads the same option, and there our tables are to be made and dropped. */
  async #withoutOurTables<T>(work: () => Promise<T>): Promise<T> {
    const options = this.#em.config.get('schemaGenerator');
    const { skipTables } = options;
    options.skipTables = [...(skipTables ?? []), ...tableNames(this.#place)];
    try {
      return await work();
    } finally {
      options.skipTables = skipTables ?? [];
    }
  }

  /** MikroORM 6 takes account of `skipTables` everywhere but in snapshots. */
  #leaveOut(schema: Schema): void {
    const skipTables = [...(this.#em.config.get('schemaGenerator').skipTables ?? []), ...tableNames(this.#place)];
    const tables = schema.getTables();
    tables.splice(0, tables.length, ...tables.filter(({ name }) => !isSkipped(name, skipTables)));
  }

  #look() {
    const connection = this.#em.getConnection();
    return lookAtTables(
      (sql, values) => connection.execute<{ name: string }[]>(sql, values),
      placeFor(this.#em.config, this.#place),
    );
  }

  /** @throws SchemaError when our migrations are noted as done, and the tables are not as they made them. */
  async #refuseDamage(): Promise<void> {
    const { dialect, ...options } = this.#place;
    const names = adkMigrations(dialect, options).map(({ name }) => name);
    await this.getExecutedMigrations();
    const executed = new Set(await this.getStorage().executed());
    if (names.some((name) => !executed.has(name))) return;
    const findings = await this.#look();
    refuseGone(findings, this.#em.config, names);
    refuseDifferent(findings);
  }
};
