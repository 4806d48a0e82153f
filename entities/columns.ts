import { type EntityProperty, type Platform, Type, ValidationError, p } from '@mikro-orm/core';
import { dialectName, type DialectName } from './dialect-name.js';
import { withCollatedType } from './mikro-orm.js';
import { correctSchemaHelper } from './sqlite-schema.js';

interface ColumnTypes {
  /** For text that identifies a row. */
  key(length: number): string;
  /** For JSON, kept as the text that was written. */
  json: string;
  /** Selects it as that text; absent if the driver returns it unchanged. */
  selectJson?(column: string): string;
  /** For text of any length. */
  text: string;
  /** For bytes of any length. */
  bytes: string;
  /** Selects them in a form that no setting changes; absent if the driver returns the bytes. */
  selectBytes?(column: string): string;
}

/** The `text` and `blob` of MySQL and MariaDB end at 64 KB. */
const LONG = { json: 'longtext', text: 'longtext', bytes: 'longblob' };

/**
 * The collations are binary and without padding: with a server's default collation `alice`, `Alice`, `alice ` and `alicé` can be
 * one user (contract D6). With PostgreSQL's "C" an update of the operating system's locales does not change the order of
 * indexes.
 */
const COLUMN_TYPES: Readonly<Record<DialectName, ColumnTypes>> = {
  sqlite: { key: () => 'text', json: 'text', text: 'text', bytes: 'blob' },
  postgresql: {
    key: (length) => `varchar(${length}) collate "C"`,
    json: 'json',
    // node-postgres would parse a json column: "5" and 5 would become the same value, and so would JSON's null and SQL's.
    selectJson: (column) => `${column}::text`,
    text: 'text',
    bytes: 'bytea',
    // `bytea_output` decides how the server writes a bytea.
    selectBytes: (column) => `encode(${column}, 'base64')`,
  },
  mysql: { key: (length) => `varchar(${length}) collate utf8mb4_0900_bin`, ...LONG },
  mariadb: { key: (length) => `varchar(${length}) collate utf8mb4_nopad_bin`, ...LONG },
};

/** For an unsupported database, the types of SQLite: it is refused later. */
const typesOf = (platform: Platform) => COLUMN_TYPES[dialectName(platform) ?? 'sqlite'];

/** Text that identifies a row, compared byte for byte on every database. */
class KeyType extends Type<string, string> {
  /** MikroORM calls this before it reads a schema. Nothing of ours knows the host's platform earlier. */
  override getColumnType(prop: EntityProperty, platform: Platform): string {
    if (dialectName(platform) === 'sqlite') correctSchemaHelper(platform);
    return typesOf(platform).key(prop.length ?? 0);
  }
}

/**
 * JSON kept as the text that `JSON.stringify` gave: `jsonb` and MySQL's `JSON` reorder keys and refuse NUL or lone
 * surrogates (contract C1).
 */
class JsonTextType extends Type<unknown, string | null> {
  override convertToDatabaseValue(value: unknown): string | null {
    const text: string | undefined = JSON.stringify(value);
    if (text === undefined) throw ValidationError.invalidType(JsonTextType, value, 'JS');
    return text;
  }

  override convertToJSValueSQL(column: string, platform: Platform): string {
    return typesOf(platform).selectJson?.(column) ?? column;
  }

  override convertToJSValue(value: unknown): unknown {
    return typeof value === 'string' ? JSON.parse(value) : value;
  }

  override getColumnType(_prop: EntityProperty, platform: Platform): string {
    return typesOf(platform).json;
  }
}

/** JSON in a nullable column. `null` is stored as SQL's null, never as JSON's. */
class OptionalJsonTextType extends JsonTextType {
  override convertToDatabaseValue(value: unknown): string | null {
    return value === null ? null : super.convertToDatabaseValue(value);
  }
}

class LongTextType extends Type<string, string> {
  override getColumnType(_prop: EntityProperty, platform: Platform): string {
    return typesOf(platform).text;
  }
}

class BytesType extends Type<Uint8Array, unknown> {
  override compareAsType(): string {
    return 'Buffer';
  }

  override convertToJSValueSQL(column: string, platform: Platform): string {
    return typesOf(platform).selectBytes?.(column) ?? column;
  }

  override convertToJSValue(value: unknown): Uint8Array {
    if (typeof value === 'string') return Buffer.from(value, 'base64');
    // libSQL gives an ArrayBuffer.
    return value === null || ArrayBuffer.isView(value) ? (value as Uint8Array) : Buffer.from(value as ArrayBuffer);
  }

  override getColumnType(_prop: EntityProperty, platform: Platform): string {
    return typesOf(platform).bytes;
  }
}

// `fieldName`, not its alias `name`: if `name` equals the name of the property, MikroORM ignores it and uses the host's
// naming strategy.
export const key = (column: string, length: number) =>
  withCollatedType(p.type(KeyType)).fieldName(column).length(length).$type<string>();

export const json = (column: string) => p.type(JsonTextType).fieldName(column).$type<unknown>();

export const optionalJson = (column: string) =>
  p.type(OptionalJsonTextType).fieldName(column).$type<unknown>().nullable();

export const text = (column: string) => p.type(LongTextType).fieldName(column).$type<string>();

export const bytes = (column: string) => p.type(BytesType).fieldName(column).$type<Uint8Array>();

export const optionalBytes = (column: string) => bytes(column).nullable();

/** Milliseconds since 1970 with their fraction, in the only type that keeps a JavaScript number exactly (contract C3). */
export const time = (column: string) => p.double().fieldName(column);
