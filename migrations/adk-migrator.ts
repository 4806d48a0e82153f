import { types } from 'node:util';
import type { EntityProperty, MetadataStorage, MikroORM } from '@mikro-orm/core';
import { Migrator } from '@mikro-orm/migrations';
import { supportedDialect } from '../entities/dialect-name.js';
import { entityNamed } from '../entities/mikro-orm.js';
import { standIn } from '../src/database/orm/stand-in.js';
import { LEAVES_OUT_ADK_TABLES, isSkipped } from './refuse-config.js';
import { withoutForeignKeys } from './sqlite-references.js';
import { adkTables, locationOf, tableNames } from './tables.js';

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

/** @returns a stand-in of the host's `EntityManager`, which stays as it is, for a migrator that leaves our tables alone. */
function ownEntityManager(em: MigratorEntityManager): MigratorEntityManager {
  const names = tableNames(locationOf(em.getMetadata()));
  const driver = em.getDriver();
  const connection = driver.getConnection();
  const isSqlite = supportedDialect(em.getPlatform()) === 'sqlite';
  const ownConnection = standIn(connection, {
    transactional: (...args: Parameters<typeof connection.transactional>) =>
      isSqlite ? withoutForeignKeys(connection, ...args) : connection.transactional(...args),
  });
  const config = standIn(em.config, {
    // `orm.schema` also reads the host's `skipTables`, and must be able to create and drop our tables.
    get(name: 'schemaGenerator') {
      const options = em.config.get(name);
      if (name !== 'schemaGenerator') return options;
      return { ...options, skipTables: [...(options.skipTables ?? []), ...names] };
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

type Schema = Parameters<Migrator['storeCurrentSchema']>[0];

/**
 * MikroORM's `Migrator`, for `extensions: [AdkMigrator]`. Only the migrations of this package change its tables:
 * `migration:create` and snapshots leave them out.
 */
export const AdkMigrator: typeof Migrator = class AdkMigrator extends Migrator {
  /** If no extension has this name, MikroORM 7 registers its own migrator over this one. */
  static override readonly name = 'Migrator';
  readonly [LEAVES_OUT_ADK_TABLES] = true;
  readonly #em: MigratorEntityManager;

  constructor(em: MigratorEntityManager) {
    const ownEm = ownEntityManager(em);
    super(ownEm);
    this.#em = ownEm;
    compareRelationsAsOurs(em.getMetadata());
  }

  static override register(orm: MikroORM): void {
    orm.config.registerExtension('@mikro-orm/migrator', () => new AdkMigrator(orm.em as MigratorEntityManager));
  }

  static {
    // By its name, since it returns a promise in MikroORM 7.
    const name = 'getSchemaFromSnapshot';
    const inherited = Reflect.get(Migrator.prototype, name) as (this: Migrator) => Schema | Promise<Schema>;
    Object.defineProperty(AdkMigrator.prototype, name, {
      value(this: AdkMigrator) {
        const found = inherited.call(this);
        return types.isPromise(found) ? found.then((schema) => this.#leaveOut(schema)) : this.#leaveOut(found);
      },
    });
  }

  override async up(options?: Parameters<Migrator['up']>[0]) {
    // If nothing is pending, it spares the check on SQLite, which reads each row that has a foreign key.
    const name = 'getPending' in this ? 'getPending' : 'getPendingMigrations';
    const pending = await (Reflect.get(this, name) as (this: Migrator) => Promise<object[]>).call(this);
    return pending.length > 0 ? super.up(options) : [];
  }

  /** @param schema the schema of the database after `up` or `down`. */
  protected override async storeCurrentSchema(schema?: Schema) {
    await super.storeCurrentSchema(this.#leaveOut(schema));
  }

  /** MikroORM does not apply `skipTables` to a snapshot that it reads, and MikroORM 6 not to one that it writes either. */
  #leaveOut(schema: Schema): Schema {
    const { skipTables = [] } = this.#em.config.get('schemaGenerator');
    const tables = schema?.getTables();
    tables?.splice(0, tables.length, ...tables.filter(({ name }) => !isSkipped(name, skipTables)));
    return schema;
  }
};
