import type { DialectName } from '../../entities/dialect-name.js';

/** How a database says what it reads. */
export interface Plan {
  /** Makes the planner know the tables. */
  analyze: string;
  /** The tables, or the lines that name them, that a statement reads from end to end; not the few rows of the counters. */
  scans(explain: (prefix: string) => Promise<object[]>): Promise<string[]>;
}

const TABLES = [
  'changes',
  'counters',
  'sessions',
  'events',
  'event_parts',
  'session_states',
  'user_states',
  'app_states',
]
  .map((table) => `adk_${table}`)
  .join(', ');

const mysql: Plan = {
  analyze: `analyze table ${TABLES}`,
  async scans(explain) {
    // Without the format MySQL 9 answers with a tree, in another column.
    const rows = (await explain('explain format=traditional')) as { table: string | null; type: string | null }[];
    const scanned = rows.filter(({ type }) => type === 'ALL' || type === 'index');
    return scanned.flatMap(({ table }) => (table === null || table.startsWith('<') ? [] : [table]));
  },
};

export const plans: Record<DialectName, Plan> = {
  sqlite: {
    analyze: 'analyze',
    async scans(explain) {
      const rows = (await explain('explain query plan')) as { detail: string }[];
      return rows.map(({ detail }) => detail).filter((line) => /^SCAN (adk_|[ce]$|[ce] )/.test(line));
    },
  },
  postgresql: {
    analyze: `analyze ${TABLES}`,
    async scans(explain) {
      const rows = (await explain('explain')) as { 'QUERY PLAN': string }[];
      return rows.map((row) => row['QUERY PLAN']).filter((line) => /Seq Scan on adk_(?!counters)/.test(line));
    },
  },
  mysql,
  mariadb: mysql,
};
