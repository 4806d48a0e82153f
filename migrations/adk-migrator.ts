import type { MetadataStorage, MikroORM } from '@mikro-orm/core';
import { Migrator } from '@mikro-orm/migrations';
import type { AdkEvent } from '../entities/index.js';
import { dialectName } from '../entities/dialect-name.js';
import { SchemaError } from '../src/model/errors.js';
import { adkMigrations } from './adk-migrations.js';
import { changeMethod, changeSchema, executedNames, lastKnown, type Schema } from './mikro-orm.js';
import { LEAVES_OUT_ADK_TABLES, isSkipped } from './refuse-config.js';
import {
  TABLES,
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

/** MikroORM 7 finds the columns of a relation different each time when those that it refers to say their collation. */
function compareRelationsAsOurs(metadata: MetadataStorage): void {
  const ours = metadata.find<AdkEvent>('AdkEvent')?.properties.session.ignoreSchemaChanges;
  for (const { relations } of metadata) {
    for (const relation of relations) {
      if (ours && TABLES.some(({ entity }) => entity === relation.targetMeta?.className)) {
        relation.ignoreSchemaChanges ??= ours;
      }
    }
  }
}

/**
 * MikroORM's `Migrator`, for `extensions: [AdkMigrator]`. It leaves the tables of this package to the migrations of this
 * package: `migration:create` writes of the host's alone, and the snapshot holds the host's alone. `migration:up` and
 * `migration:check` look whether ours are there, and throw `SchemaError` when they are not.
 */
export const AdkMigrator: typeof Migrator = class AdkMigrator extends Migrator {
  /** MikroORM 7 puts its own migrator in the place of ours where no extension has this name. */
  static override readonly name = 'Migrator';
  readonly [LEAVES_OUT_ADK_TABLES] = true;
  readonly #em: MigratorEntityManager;
  readonly #place: Place;

  constructor(em: MigratorEntityManager) {
    super(em);
    const dialect = dialectName(em.getPlatform());
    if (!dialect) throw new SchemaError('adk-mikro-orm runs on SQLite, PostgreSQL, MySQL and MariaDB only.');
    this.#em = em;
    this.#place = { dialect, ...placeOf(em.getMetadata()) };
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
    const applied = await this.#withoutOurTables(() => super.up(options));
    await this.#refuseDamage();
    return applied;
  }

  override async down(options?: Parameters<Migrator['down']>[0]) {
    const known = await lastKnown(this, options);
    return this.#withoutOurTables(() => super.down(known));
  }

  /** @param schema what the database holds, after `up` and `down`. */
  protected override async storeCurrentSchema(schema?: Parameters<Migrator['storeCurrentSchema']>[0]) {
    if (schema) this.#leaveOut(schema);
    await super.storeCurrentSchema(schema);
  }

  /** Not for longer than needed: `orm.schema` reads the same option, and there our tables are to be made and dropped. */
  async #withoutOurTables<T>(work: () => T): Promise<Awaited<T>> {
    const options = this.#em.config.get('schemaGenerator');
    const { skipTables } = options;
    options.skipTables = [...(skipTables ?? []), ...tableNames(this.#place)];
    try {
      return await work();
    } finally {
      options.skipTables = skipTables ?? [];
    }
  }

  /** MikroORM takes account of `skipTables` everywhere but in snapshots that it reads, and 6 in those that it writes. */
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

  /** @throws SchemaError when a table of ours is missing, or another program's; not where the database can't be reached. */
  async #refuseMissing(): Promise<void> {
    // Not `checkConnection`: on MikroORM 7 it connects to nothing, and says that there is no connection yet.
    const isReached = await this.#em
      .getConnection()
      .execute('select 1')
      .then(
        () => true,
        () => false,
      );
    if (!isReached) return;
    const findings = await this.#look();
    refuseMissing(findings);
    refuseDifferent(findings);
  }

  /** @throws SchemaError when our migrations are noted as done, and the tables are not as they made them. */
  async #refuseDamage(): Promise<void> {
    const { dialect, ...options } = this.#place;
    const names = adkMigrations(dialect, options).map(({ name }) => name);
    const executed = await executedNames(this);
    if (names.some((name) => !executed.has(name))) return;
    const findings = await this.#look();
    refuseGone(findings, this.#em.config, names);
    refuseDifferent(findings);
  }
};
