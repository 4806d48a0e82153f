import type { EntityProperty, MetadataStorage, MikroORM } from '@mikro-orm/core';
import { Migrator } from '@mikro-orm/migrations';
import { supportedDialect } from '../entities/dialect-name.js';
import { entityNamed } from '../entities/mikro-orm.js';
import { adkMigrations } from './adk-migrations.js';
import { executedNames } from './executed-names.js';
import { changeMethod, changeSchema, lastKnown, pendingMigrations, type Schema } from './mikro-orm.js';
import { LEAVES_OUT_ADK_TABLES, isSkipped } from './refuse-config.js';
import { withoutForeignKeys } from './sqlite-references.js';
import { standIn } from '../src/database/orm/stand-in.js';
import {
  adkTables,
  findingsOf,
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

/** The members of MikroORM's objects that the migrator has of its own: the host's stay as they are. */
interface Own {
  /** Whether tables may change. */
  isMigrating: boolean;
}

/** @returns a stand-in of the host's `EntityManager`, for a migrator that leaves our tables alone. */
function ownEntityManager(em: MigratorEntityManager, location: TableLocation, own: Own): MigratorEntityManager {
  const driver = em.getDriver();
  const connection = driver.getConnection();
  const ownConnection = standIn(connection, {
    transactional: (...args: Parameters<typeof connection.transactional>) =>
      own.isMigrating && location.dialect === 'sqlite'
        ? withoutForeignKeys(connection, ...args)
        : connection.transactional(...args),
  });
  const config = standIn(em.config, {
    // `orm.schema` also reads the host's `skipTables`, and must be able to create and drop our tables.
    get(name: 'schemaGenerator') {
      const options = em.config.get(name);
      if (name !== 'schemaGenerator') return options;
      return { ...options, skipTables: [...(options.skipTables ?? []), ...tableNames(location)] };
    },
    // MikroORM 7 takes its generator from here.
    getExtension(name: string) {
      const extension = em.config.getExtension<object>(name);
      const Extension = extension?.constructor as (new (em: object) => object) | undefined;
      return Extension && name === '@mikro-orm/schema-generator' ? new Extension(ownEm) : extension;
    },
  });
  const ownDriver = standIn(driver, { config, getConnection: () => ownConnection });
  const ownEm = standIn(em, { config, getDriver: () => ownDriver, getConnection: () => ownConnection });
  return ownEm;
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
  readonly #own: Own;

  constructor(em: MigratorEntityManager) {
    const location = { dialect: supportedDialect(em.getPlatform()), ...locationOf(em.getMetadata()) };
    const own: Own = { isMigrating: false };
    const ownEm = ownEntityManager(em, location, own);
    super(ownEm);
    this.#em = ownEm;
    this.#location = location;
    this.#own = own;
    compareRelationsAsOurs(em.getMetadata());
  }

  static override register(orm: MikroORM): void {
    orm.config.registerExtension('@mikro-orm/migrator', () => new AdkMigrator(orm.em as MigratorEntityManager));
  }

  static {
    const { prototype } = AdkMigrator;
    changeMethod(prototype, 'check', async (migrator, inherited) => {
      const needed = await inherited();
      await migrator.#refuseMissing();
      return needed;
    });
    changeMethod(prototype, 'getSchemaFromSnapshot', (migrator, inherited) =>
      changeSchema(inherited(), (schema) => migrator.#leaveOut(schema)),
    );
  }

  override async up(options?: Parameters<Migrator['up']>[0]) {
    await this.#refuseDamage();
    // If nothing is pending, it spares the check on SQLite, which reads each row that has a foreign key.
    const isPending = (await pendingMigrations(this)).length > 0;
    const applied = await this.#migrate(isPending, () => super.up(options));
    await this.#refuseDamage();
    return applied;
  }

  override async down(options?: Parameters<Migrator['down']>[0]) {
    const known = await lastKnown(this.#em, this, options);
    return this.#migrate(true, () => super.down(known));
  }

  async #migrate<T>(isMigrating: boolean, work: () => Promise<T>): Promise<T> {
    this.#own.isMigrating = isMigrating;
    try {
      return await work();
    } finally {
      this.#own.isMigrating = false;
    }
  }

  /** @param schema the schema of the database after `up` or `down`. */
  protected override async storeCurrentSchema(schema?: Parameters<Migrator['storeCurrentSchema']>[0]) {
    if (schema) this.#leaveOut(schema);
    await super.storeCurrentSchema(schema);
  }

  /** MikroORM does not apply `skipTables` to a snapshot that it reads, and MikroORM 6 not to one that it writes either. */
  #leaveOut(schema: Schema): void {
    const { skipTables = [] } = this.#em.config.get('schemaGenerator');
    const tables = schema.getTables();
    tables.splice(0, tables.length, ...tables.filter(({ name }) => !isSkipped(name, skipTables)));
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
    const findings = await findingsOf(this.#em);
    refuseMissing(findings);
    refuseDifferent(findings);
  }

  /** @throws SchemaError if our migrations are recorded as executed, but a table or a column is missing. */
  async #refuseDamage(): Promise<void> {
    const { dialect, ...options } = this.#location;
    const names = adkMigrations(dialect, options).map(({ name }) => name);
    const executed = new Set(await executedNames(this.#em));
    if (names.some((name) => !executed.has(name))) return;
    const findings = await findingsOf(this.#em);
    refuseGone(findings, this.#em.config, names);
    refuseDifferent(findings);
  }
};
