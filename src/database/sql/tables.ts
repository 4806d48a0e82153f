import type { EntityManager, EntityMetadata, EntityProperty } from '@mikro-orm/core';
import { TRAITS, supportedDialect } from '../../../entities/dialect-name.js';
import { entityNamed } from '../../../entities/mikro-orm.js';
import { refusePlaceholder } from '../../../entities/naming.js';
import { SchemaError } from '../../model/errors.js';
import { processWide } from '../../model/process-wide.js';

const ENTITIES = {
  sessions: 'AdkSession',
  events: 'AdkEvent',
  eventParts: 'AdkEventPart',
  openCalls: 'AdkOpenCall',
  sessionStates: 'AdkSessionState',
  userStates: 'AdkUserState',
  appStates: 'AdkAppState',
  changes: 'AdkChange',
  counters: 'AdkCounter',
  projections: 'AdkProjection',
  retryTokens: 'AdkRetryToken',
  artifacts: 'AdkArtifact',
  artifactVersions: 'AdkArtifactVersion',
  artifactParts: 'AdkArtifactPart',
  memories: 'AdkMemory',
  forgottenMemories: 'AdkForgottenMemory',
  credentials: 'AdkCredential',
} as const;

export type Table = keyof typeof ENTITIES;

const TABLES = Object.keys(ENTITIES) as Table[];

/** The quoted names of the tables in the host's database. Columns have the names that the entities give them, so SQL writes them out. */
export type Tables = Readonly<Record<Table, string>> & {
  readonly select: Readonly<Record<keyof typeof SELECTED, string>>;
  /** The quoted name of the index of events by id. */
  readonly eventsById: string;
};

/** The columns whose entity's type selects them so that their text or bytes come back unchanged. `bytesOf` reads bytes. */
const SELECTED = {
  /** JSON of events and changes. */
  data: ['events', 'data'],
  value: ['sessionStates', 'value'],
  labels: ['sessions', 'labels'],
  info: ['artifactVersions', 'info'],
  bytes: ['artifactParts', 'data'],
  words: ['memories', 'words'],
  embedding: ['memories', 'embedding'],
} as const satisfies Record<string, readonly [Table, string]>;

const known = processWide('tables', () => new WeakMap<object, Map<string, Tables>>());

/**
 * The tables of an `EntityManager` itself, whatever `RequestContext` it is used in (contract E5). The same ORM and schema always
 * give the same object.
 *
 * @throws SchemaError if the ORM does not know the entities of this package, or leaves their schema open with `'*'`.
 */
export function tablesOf(em: EntityManager): Tables {
  const metaOf = (entity: string) => {
    const meta = entityNamed(em.getMetadata(), entity);
    if (!meta) {
      throw new SchemaError(`The ORM does not know ${entity}. Add ...adkEntities() to 'entities' in its config.`);
    }
    return meta;
  };
  const name = (entity: string) => quotedTable(em, metaOf(entity));
  const select = ([table, column]: readonly [Table, string]) => {
    const properties: Record<string, EntityProperty> = metaOf(ENTITIES[table]).properties;
    return properties[column]?.customType?.convertToJSValueSQL?.(column, em.getPlatform()) ?? column;
  };
  const all = known.get(em.getMetadata()) ?? new Map<string, Tables>();
  known.set(em.getMetadata(), all);
  const sessions = name(ENTITIES.sessions);
  const tables = all.get(sessions) ?? {
    ...mapped(ENTITIES, name),
    eventsById: em.getPlatform().quoteIdentifier(`${metaOf(ENTITIES.events).tableName}_event_id`),
    select: mapped(SELECTED, select),
  };
  all.set(sessions, tables);
  return tables;
}

const mapped = <Name extends string, Value>(of: Readonly<Record<Name, Value>>, text: (value: Value) => string) =>
  Object.fromEntries(Object.entries<Value>(of).map(([name, value]) => [name, text(value)])) as Record<Name, string>;

/** For the database of another program, whose tables have other names. */
export const NO_TABLES: Tables = {
  ...mapped(ENTITIES, () => ''),
  eventsById: '',
  select: mapped(SELECTED, () => ''),
};

export function tableNames(tables: Tables): string[] {
  return TABLES.map((table) => tables[table]);
}

/** @throws SchemaError for MikroORM's wildcard, with which each query must name its schema. */
export function refuseWildcard(schema: string | undefined): void {
  if (schema === '*') {
    throw new SchemaError(`schema: '*' is not supported. Name one schema: adkEntities({ schema: 'kb' }).`);
  }
}

/** @throws SchemaError for MikroORM's wildcard. */
export function quotedTable(em: EntityManager, meta: EntityMetadata): string {
  const platform = em.getPlatform();
  // `em.schema` would be that of the request's `EntityManager`.
  const { schema: ofManager = em.config.get('schema') } = em.fork({ disableContextResolution: true });
  const schema = meta.schema ?? ofManager;
  refuseWildcard(schema);
  refusePlaceholder(`${schema}${meta.tableName}`);
  const table = platform.quoteIdentifier(meta.tableName);
  // Like MikroORM, leave the schema out if the database has none.
  return schema && TRAITS[supportedDialect(platform)].hasSchemas
    ? `${platform.quoteIdentifier(schema)}.${table}`
    : table;
}
