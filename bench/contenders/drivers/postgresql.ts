import pg from 'pg';
import { runSteps, type BareDriver, type Outcome, type Statement } from './bare-driver.js';

/** `pg`, with named prepared statements. */
export function openPostgresql(url: string): BareDriver {
  const pool = new pg.Pool({ connectionString: url, max: 10 });
  // Dropping the database can end a connection that is still closing.
  pool.on('connect', (client) => client.on('error', () => undefined));
  const prepared = new Map<string, { name: string; text: string }>();

  const executeOn =
    (client: pg.Pool | pg.PoolClient) =>
    async ({ text, values }: Statement): Promise<Outcome> => {
      let query = prepared.get(text);
      if (!query) {
        let number = 0;
        query = { name: `bench_${prepared.size}`, text: text.replace(/\?/g, () => `$${++number}`) };
        prepared.set(text, query);
      }
      const { rows } = await client.query<Outcome['rows'][number]>({ ...query, values: [...values] });
      return { rows, insertId: 0 };
    };

  return {
    async transaction(steps) {
      const client = await pool.connect();
      try {
        await client.query('begin');
        const result = await runSteps(steps, executeOn(client));
        await client.query('commit');
        return result;
      } catch (error) {
        await client.query('rollback');
        throw error;
      } finally {
        client.release();
      }
    },
    run: (steps) => runSteps(steps, executeOn(pool)),
    upsert: (keys) =>
      `on conflict (${keys.join(', ')}) do update set value = excluded.value, event_id = excluded.event_id`,
    insertMissing: { start: 'insert into', end: 'on conflict do nothing' },
    hasReturning: true,
    jsonText: (column) => `${column}::text`,
    date: (ms) => new Date(ms),
    analyze: async (tables) => {
      for (const table of tables) await pool.query(`vacuum analyze ${table}`);
    },
    close: () => pool.end(),
  };
}
