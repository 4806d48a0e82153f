import type { DialectName } from '../../entities/dialect-name.js';

/** How a database says what it reads. */
export interface Plan {
  /** Makes the planner know the tables. */
  analyze: string;
  /** The tables, or the lines that name them, that a statement reads from end to end. */
  scans(explain: (prefix: string) => Promise<object[]>): Promise<string[]>;
}

const TABLES = ['adk_counters', 'adk_sessions', 'adk_events', 'adk_event_parts'].join(', ');

const mysql: Plan = {
  analyze: `analyze table ${TABLES}`,
  async scans(explain) {
    const rows = (await explain('explain')) as { table: string | null; type: string | null }[];
    return rows.flatMap(({ table, type }) =>
      table !== null && !table.startsWith('<') && (type === 'ALL' || type === 'index') ? [table] : [],
    );
  },
};

export const plans: Record<DialectName, Plan> = {
  sqlite: {
    analyze: 'analyze',
    async scans(explain) {
      const rows = (await explain('explain query plan')) as { detail: string }[];
      return rows.map(({ detail }) => detail).filter((line) => /^SCAN (adk_|e$|e )/.test(line));
    },
  },
  postgresql: {
    analyze: `analyze ${TABLES}`,
    async scans(explain) {
      const rows = (await explain('explain')) as { 'QUERY PLAN': string }[];
      return rows.map((row) => row['QUERY PLAN']).filter((line) => line.includes('Seq Scan on adk_'));
    },
  },
  mysql,
  mariadb: mysql,
};
