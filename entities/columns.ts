import { type EntityProperty, type Platform, Type, ValidationError, p } from '@mikro-orm/core';
import { dialectName } from './dialect-name.js';
import { withCollatedType } from './mikro-orm.js';

/**
 * Binary and without padding: with a server's default collation `alice`, `Alice`, `alice ` and `alicé` can be
 * one user (contract D6). With PostgreSQL's "C" an update of the operating system's locales does not change the order of
 * indexes.
 */
const BINARY_COLLATION = {
  sqlite: '',
  postgresql: ' collate "C"',
  mysql: ' collate utf8mb4_0900_bin',
  mariadb: ' collate utf8mb4_nopad_bin',
} as const;

function binaryCollation(platform: Platform): string {
  return BINARY_COLLATION[dialectName(platform) ?? 'sqlite'];
}

/** MySQL's and MariaDB's `text` ends at 64 KB. */
function longText(platform: Platform): string {
  const name = dialectName(platform);
  return name === 'mysql' || name === 'mariadb' ? 'longtext' : 'text';
}

/** Text that identifies a row, compared byte for byte on every database. */
class KeyType extends Type<string, string> {
  override getColumnType(prop: EntityProperty, platform: Platform): string {
    if (dialectName(platform) === 'sqlite') return 'text';
    return `varchar(${prop.length})${binaryCollation(platform)}`;
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

  // node-postgres parses a json column itself: then "5" and 5 become the same value, and so do JSON's null and SQL's.
  override convertToJSValueSQL(column: string, platform: Platform): string {
    return dialectName(platform) === 'postgresql' ? `${column}::text` : column;
  }

  override convertToJSValue(value: unknown): unknown {
    return typeof value === 'string' ? JSON.parse(value) : value;
  }

  override getColumnType(_prop: EntityProperty, platform: Platform): string {
    return dialectName(platform) === 'postgresql' ? 'json' : longText(platform);
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
    return longText(platform);
  }
}

// `fieldName`, not its alias `name`: where `name` equals the name of the property, MikroORM ignores it and uses the host's
// naming strategy.
export const key = (column: string, length: number) =>
  withCollatedType(p.type(KeyType)).fieldName(column).length(length).$type<string>();

export const json = (column: string) => p.type(JsonTextType).fieldName(column).$type<unknown>();

export const optionalJson = (column: string) =>
  p.type(OptionalJsonTextType).fieldName(column).$type<unknown>().nullable();

export const text = (column: string) => p.type(LongTextType).fieldName(column).$type<string>();

/** Milliseconds since 1970 with their fraction, in the only type that gives a JavaScript number back exactly (contract C3). */
export const time = (column: string) => p.double().fieldName(column);
