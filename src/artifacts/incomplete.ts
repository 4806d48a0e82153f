import type { Run, Sql } from '../database/dialects/dialect.js';
import { keysetAfter } from '../database/sql/keyset.js';
import { SESSION_KEY, isSameSession, perTables, sessionValues, numberOf } from '../database/sql/tables.js';
import { pagesOf } from '../model/pages.js';
import { artifactKeyOf, type ArtifactKeyRow, type VersionKey } from './stored-version.js';

/** How many versions one query reads. */
const PAGE = 1_000;

/**
 * Finds versions that lack parts, from the keys of the parts.
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

interface Row extends ArtifactKeyRow {
  version: number | string;
  parts: number | string | null;
  /** The number of rows of parts, and the number of the last part. */
  found: number | string;
  last_part: number | string | null;
}

function isIncomplete({ parts, found, last_part }: Row): boolean {
  const count = numberOf(parts ?? 0);
  return numberOf(found) !== count || numberOf(last_part ?? -1) !== count - 1;
}

const keyOf = (row: Row): VersionKey => ({ ...artifactKeyOf(row), version: numberOf(row.version) });

const COLUMNS = [...SESSION_KEY, 'filename', 'version'];

/** Reads the next versions whose row has no content. */
function page(sql: Sql, after: VersionKey | undefined): Promise<Row[]> {
  const keyset = after && keysetAfter(COLUMNS, [...sessionValues(after), after.filename, after.version]);
  const text = textsOf(sql)(keyset ? ` and ${keyset.where}` : '');
  return sql.all<Row>(text, [...(keyset?.values ?? []), PAGE]);
}

const textsOf = perTables(({ tables: { artifactVersions, artifactParts } }: Sql) => {
  const ofParts = (what: string) => `(select ${what} from ${artifactParts} as p where ${isSameSession('p', 'v')}
    and p.filename = v.filename and p.version = coalesce(v.upload, v.version))`;
  return (more: string) => `select ${COLUMNS.join(', ')}, parts, ${ofParts('count(*)')} as found,
      ${ofParts('max(p.part)')} as last_part
    from ${artifactVersions} as v where version >= 0 and data is null${more} order by ${COLUMNS.join(', ')} limit ?`;
});
