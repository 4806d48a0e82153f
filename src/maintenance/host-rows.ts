import { QueryOrder, raw, serialize, type EntityManager, type EntityMetadata } from '@mikro-orm/core';
import { entityNamed } from '../../entities/mikro-orm.js';
import type { Sql } from '../database/dialects/dialect.js';
import { quotedTable } from '../database/sql/tables.js';
import { allOf, ifGiven, optionalTextOf } from '../database/sql/values.js';
import { countRows } from '../database/statements/count.js';
import type { Owner, OwnedRows } from '../owned/owned-rows.js';
import { aString, object, rule } from '../model/arguments.js';
import { isObject } from '../model/json.js';
import { InvalidArgumentError, SchemaError } from '../model/errors.js';
import type { HostRecord } from '../model/records.js';
import type { MaintenanceOptions } from './options.js';

type OwnedEntity = NonNullable<MaintenanceOptions['owned']>[number];

const checkEntity = object<OwnedEntity>(
  {
    entity: rule('an entity', (value) => typeof value === 'function' || isObject(value)),
    appName: aString,
    userId: aString,
  },
  ...(['entity', 'appName', 'userId'] as const),
);

/**
 * Makes kinds of the host's tables. Their rows go before the sessions, to which they may refer, and in the order of the list.
 *
 * @throws SchemaError if the ORM does not know an entity.
 * @throws InvalidArgumentError if an entity has no such property.
 */
export const hostRows = (em: EntityManager, owned: readonly OwnedEntity[] = []): OwnedRows[] =>
  owned.map((each) => kindOf(em, checkEntity(each, 'owned')));

function kindOf(em: EntityManager, { entity, appName, userId }: OwnedEntity): OwnedRows {
  const name = 'meta' in entity ? entity.meta.className : entity.name;
  const meta = entityNamed(em.getMetadata(), name);
  if (!meta) throw new SchemaError(`The ORM does not know ${name}, which is in owned.`);
  const [app, user] = [columnOf(em, meta, appName), columnOf(em, meta, userId)];
  const table = quotedTable(em, meta);
  const key = meta
    .getPrimaryProps()
    .flatMap(({ fieldNames }) => fieldNames.map((column) => em.getPlatform().quoteIdentifier(column)))
    .join(', ');
  // A host's column may have a collation for which `alice` is `Alice` (contract D6): the bytes are compared, too.
  const rowsOf = ({ dialect }: Sql, owner: Partial<Owner>, after?: string) => {
    const hex = (column: string) => `lower(${dialect.sql.hex(column)})`;
    const { where, values } = allOf(
      ifGiven(`${app} = ?`, owner.appName),
      ifGiven(`${hex(app)} = ?`, hexOf(owner.appName)),
      ifGiven(`${user} = ?`, owner.userId),
      ifGiven(`${hex(user)} = ?`, hexOf(owner.userId)),
      ifGiven(`${hex(app)} > ?`, hexOf(after)),
    );
    return { where, from: `${table} where ${where}`, values, firstApp: `min(${hex(app)})` };
  };
  return {
    name,
    isCounted: true,
    async nextApp(sql: Sql, after: string, ofUser?: string) {
      // Nobody asks for the rows of all people.
      if (ofUser === undefined) return undefined;
      const { from, values, firstApp } = rowsOf(sql, { userId: ofUser }, after);
      const [row] = await sql.all(`select ${firstApp} as name from ${from}`, values);
      const name = row && optionalTextOf(row['name']);
      return typeof name === 'string' ? Buffer.from(name, 'hex').toString() : undefined;
    },
    rows: {
      precedeSessions: true,
      count(sql, selection) {
        const { from, values } = rowsOf(sql, selection);
        return countRows(sql, from, values);
      },
      // Without their keys, which may have any type: not every driver gives back what it takes.
      async page(sql, selection, limit) {
        const { from, values } = rowsOf(sql, selection);
        return (await sql.all(`select 1 as found from ${from} limit ?`, [...values, limit])).map(() => []);
      },
      async erase(sql, selection, keys) {
        const { where, values } = rowsOf(sql, selection);
        const text = sql.dialect.sql.deleteSome(table, key, where);
        return (await sql.run(text, [...values, keys.length])).affectedRows;
      },
    },
    records: {
      async *read({ run, call }, owner): AsyncGenerator<HostRecord> {
        // Only a person's: the other rows are the host's to copy.
        if (owner.userId === undefined) return;
        const { sql } = await run(({ dialect }) => Promise.resolve(dialect));
        const bytesOf = (column: string) => rawKey((alias) => `lower(${sql.hex(`${alias}.${column}`)})`);
        const where = {
          ...{ [appName]: owner.appName, [userId]: owner.userId },
          [bytesOf(app)]: hexOf(owner.appName),
          [bytesOf(user)]: hexOf(owner.userId),
        };
        const orderBy = meta.primaryKeys.map((key) => ({ [key]: QueryOrder.ASC }));
        const found = await call(() => em.fork().find(meta.class, where, { orderBy, filters: false }));
        for (const row of found) {
          const json = JSON.stringify(serialize(row), (_key, value: unknown) =>
            typeof value === 'bigint' ? String(value) : value,
          );
          const { appName, userId } = { userId: '', ...owner };
          yield { type: 'owned', appName, userId, entity: name, row: JSON.parse(json) as Record<string, unknown> };
        }
      },
    },
  };
}

/** A condition's key in SQL. MikroORM 6 and 7 order its type arguments differently. */
const rawKey: (text: (alias: string) => string) => PropertyKey = raw;

const hexOf = (text: string | undefined) => (text === undefined ? undefined : Buffer.from(text).toString('hex'));

function columnOf(em: EntityManager, meta: EntityMetadata, property: string): string {
  const { fieldNames = [] } = (meta.properties as Record<string, { fieldNames?: string[] }>)[property] ?? {};
  const [column] = fieldNames;
  if (column === undefined || fieldNames.length > 1)
    throw new InvalidArgumentError(
      `${meta.className}, which is in owned, has no property '${property}' with a column.`,
    );
  return em.getPlatform().quoteIdentifier(column);
}
