import type { Run, Sql } from '../database/dialects/dialect.js';
import { keysetAfter } from '../database/sql/keyset.js';
import { numberOf, textOf } from '../database/sql/row-values.js';
import {
  SESSION_KEY,
  isSameSession,
  perTables,
  sessionKeyOf,
  sessionValues,
  type SessionKeyRow,
} from '../database/sql/tables.js';
import { isEncoded } from '../model/codec.js';
import { parse } from '../model/event-codec.js';
import { isRecord } from '../model/objects.js';
import { pagesOf } from '../model/pages.js';
import { PART_BYTES } from './artifact-content.js';
import type { VersionKey } from './stored-version.js';

/** How many versions one query reads. */
const PAGE = 1_000;

/**
 * Finds versions that lack parts, from the keys of the parts. The size of encoded content is unknown, so a missing part at the end is
 * not found.
 *
 * @returns at most `limit` keys.
 */
export async function incompleteVersions(run: Run, limit: number): Promise<VersionKey[]> {
  const found: VersionKey[] = [];
  for await (const rows of pagesOf<Row>(PAGE, (last) => run((sql) => page(sql, last && keyOf(last))))) {
    found.push(...rows.filter(isIncomplete).map(keyOf));
    if (found.length >= limit) break;
  }
  return found.slice(0, limit);
}

interface Row extends SessionKeyRow {
  filename: string;
  version: number | string;
  info: string;
  /** The number of parts, and of the last one. */
  parts: number | string;
  last_part: number | string | null;
}

function isIncomplete({ info, parts, last_part }: Row): boolean {
  const count = numberOf(parts);
  if (count !== (last_part === null ? 0 : numberOf(last_part) + 1)) return true;
  const text = textOf(info);
  if (isEncoded(text)) return false;
  const value = parse(text)?.value;
  const content = isRecord(value) ? value['content'] : undefined;
  // A reference has no content.
  const expected = isRecord(content) ? Math.max(1, Math.ceil(Number(content['size']) / PART_BYTES)) : 0;
  return count !== expected;
}

const keyOf = (row: Row): VersionKey => ({
  ...sessionKeyOf(row),
  filename: textOf(row.filename),
  version: numberOf(row.version),
});

const COLUMNS = [...SESSION_KEY, 'filename', 'version'];

/** Reads the next versions whose row has no content. */
function page(sql: Sql, after: VersionKey | undefined): Promise<Row[]> {
  const keyset = after && keysetAfter(COLUMNS, [...sessionValues(after), after.filename, after.version]);
  const text = textsOf(sql)(keyset ? ` and ${keyset.where}` : '');
  return sql.all<Row>(text, [...(keyset?.values ?? []), PAGE]);
}

const textsOf = perTables(({ tables: { artifactVersions, artifactParts, select } }: Sql) => {
  const ofParts = (what: string) => `(select ${what} from ${artifactParts} as p where ${isSameSession('p', 'v')}
    and p.filename = v.filename and p.version = coalesce(v.upload, v.version))`;
  return (more: string) => `select ${COLUMNS.join(', ')}, ${select.info} as info, ${ofParts('count(*)')} as parts,
      ${ofParts('max(p.part)')} as last_part
    from ${artifactVersions} as v where version >= 0 and data is null${more} order by ${COLUMNS.join(', ')} limit ?`;
});
