import type { EntityProperty, MetadataStorage, MikroORM } from '@mikro-orm/core';
import { Migrator } from '@mikro-orm/migrations';
import { supportedDialect } from '../entities/dialect-name.js';
import { entityNamed } from '../entities/mikro-orm.js';
import { adkMigrations } from './adk-migrations.js';
import { changeMethod, changeSchema, executedNames, lastKnown, pendingMigrations, type Schema } from './mikro-orm.js';
import { LEAVES_OUT_ADK_TABLES, isSkipped } from './refuse-config.js';
import { withoutForeignKeys } from './sqlite-references.js';
import {
  adkTables,
  checkTables,
  locationFor,
  locationOf,
  refuseDifferent,
  refuseGone,
  refuseMissing,
  tableNames,
  type TableLocation,
} from './tables.js';

type MigratorEntityManager = ConstructorParameters<typeof Migrator>[0];

/**
 * Makes MikroORM 7 compare the host's relations to our entities like our own. Otherwise it finds a difference each time, since the type
 * of our keys contains a collation.
 */
function compareRelationsAsOurs(metadata: MetadataStorage): void {
  const properties: Record<string, EntityProperty> | undefined = entityNamed(metadata, 'AdkEvent')?.properties;
  const ours = properties?.['session']?.ignoreSchemaChanges;
  for (const { relations } of metadata) {
    for (const relation of relations) {
      if (ours && adkTables().some(({ entity }) => entity === relation.targetMeta?.className)) {
        relation.ignoreSchemaChanges ??= ours;
      }
    }
  }
}

/**
 * MikroORM's `Migrator`, for `extensions: [AdkMigrator]`. Only the migrations of this package change its tables:
 * `migration:create` and snapshots leave them out. `migration:up` throws `SchemaError` if a table that it made is gone, and
 * `migration:check` if a table is missing.
 */
export const AdkMigrator: typeof Migrator = class AdkMigrator extends Migrator {
  /** If no extension has this name, MikroORM 7 registers its own migrator over this one. */
  static override readonly name = 'Migrator';
  readonly [LEAVES_OUT_ADK_TABLES] = true;
  readonly #em: MigratorEntityManager;
  readonly #location: TableLocation;

  constructor(em: MigratorEntityManager) {
    super(em);
    const dialect = supportedDialect(em.getPlatform());
    this.#em = em;
    this.#location = { dialect, ...locationOf(em.getMetadata()) };
    compareRelationsAsOurs(em.getMetadata());
  }

  static override register(orm: MikroORM): void {
    orm.config.registerExtension('@mikro-orm/migrator', () => new AdkMigrator(orm.em as MigratorEntityManager));
  }

  static {
    const { prototype } = AdkMigrator;
    changeMethod(prototype, 'create', (migrator, inherited) => migrator.#withoutOurTables(inherited));
    changeMethod(prototype, 'createInitial', (migrator, inherited) => migrator.#withoutOurTables(inherited));
    changeMethod(prototype, 'check', async (migrator, inherited) => {
      const needed = await migrator.#withoutOurTables(inherited);
      await migrator.#refuseMissing();
      return needed;
    });
    changeMethod(prototype, 'getSchemaFromSnapshot', (migrator, inherited) =>
      changeSchema(inherited(), (schema) => migrator.#leaveOut(schema)),
    );
  }

  override async up(options?: Parameters<Migrator['up']>[0]) {
    await this.#refuseDamage();
    const isPending = (await pendingMigrations(this)).length > 0;
    const applied = await this.#withoutOurTables(() => this.#migrate(isPending, () => super.up(options)));
    await this.#refuseDamage();
    return applied;
  }

  override async down(options?: Parameters<Migrator['down']>[0]) {
    const known = await lastKnown(this, options);
    return this.#withoutOurTables(() => this.#migrate(true, () => super.down(known)));
  }

  /** @param changesTables false if nothing is pending, to spare the check on SQLite, which reads each row that has a foreign key. */
  #migrate<T>(changesTables: boolean, work: () => Promise<T>): Promise<T> {
    return changesTables && this.#location.dialect === 'sqlite'
      ? withoutForeignKeys(this.#em.getConnection(), work)
      : work();
  }

  /** @param schema the schema of the database after `up` or `down`. */
  protected override async storeCurrentSchema(schema?: Parameters<Migrator['storeCurrentSchema']>[0]) {
    if (schema) this.#leaveOut(schema);
    await super.storeCurrentSchema(schema);
  }

  /** Sets `skipTables` only during `work`: `orm.schema` also reads it, and must be able to create and drop our tables. */
  async #withoutOurTables<T>(work: () => T): Promise<Awaited<T>> {
    const options = this.#em.config.get('schemaGenerator');
    const { skipTables } = options;
    options.skipTables = [...(skipTables ?? []), ...tableNames(this.#location)];
    try {
      return await work();
    } finally {
      options.skipTables = skipTables ?? [];
    }
  }

  /** MikroORM does not apply `skipTables` to a snapshot that it reads, and MikroORM 6 not to one that it writes either. */
  #leaveOut(schema: Schema): void {
    const skipTables = [...(this.#em.config.get('schemaGenerator').skipTables ?? []), ...tableNames(this.#location)];
    const tables = schema.getTables();
    tables.splice(0, tables.length, ...tables.filter(({ name }) => !isSkipped(name, skipTables)));
  }

  #checkTables() {
    const connection = this.#em.getConnection();
    return checkTables(
      (sql, values) => connection.execute<{ name: string }[]>(sql, values),
      locationFor(this.#em.config, this.#location),
    );
  }

  /** @throws SchemaError if one of our tables is missing or another program's, but not if the database cannot be reached. */
  async #refuseMissing(): Promise<void> {
    // Not `checkConnection`: on MikroORM 7 it does not connect, and reports that there is no connection.
    const isReached = await this.#em
      .getConnection()
      .execute('select 1')
      .then(
        () => true,
        () => false,
      );
    if (!isReached) return;
    const findings = await this.#checkTables();
    refuseMissing(findings);
    refuseDifferent(findings);
  }

  /** @throws SchemaError if our migrations are recorded as executed, but a table or a column is missing. */
  async #refuseDamage(): Promise<void> {
    const { dialect, ...options } = this.#location;
    const names = adkMigrations(dialect, options).map(({ name }) => name);
    const executed = await executedNames(this);
    if (names.some((name) => !executed.has(name))) return;
    const findings = await this.#checkTables();
    refuseGone(findings, this.#em.config, names);
    refuseDifferent(findings);
  }
};
