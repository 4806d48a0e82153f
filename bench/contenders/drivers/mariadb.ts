import { createPool, type Pool, type PoolConnection, type UpsertResult } from 'mariadb';
import { runSteps, type BareDriver, type Outcome, type Row, type Statement } from './bare-driver.js';

/** `mariadb`, with prepared statements. */
export function openMariadb(url: string): BareDriver {
  const { hostname, port, username, password, pathname } = new URL(url);
  const pool = createPool({
    host: hostname,
    port: Number(port || 3306),
    user: decodeURIComponent(username),
    password: decodeURIComponent(password),
    database: pathname.slice(1),
    connectionLimit: 10,
    insertIdAsNumber: true,
    bigIntAsNumber: true,
  });

  const executeOn =
    (connection: Pool | PoolConnection) =>
    async ({ text, values }: Statement): Promise<Outcome> => {
      const result = await connection.execute<Row[] | UpsertResult>(text, values);
      return Array.isArray(result) ? { rows: result, insertId: 0 } : { rows: [], insertId: Number(result.insertId) };
    };

  return {
    async transaction(steps) {
      const connection = await pool.getConnection();
      try {
        await connection.query('begin');
        const result = await runSteps(steps, executeOn(connection));
        await connection.query('commit');
        return result;
      } catch (error) {
        await connection.query('rollback');
        throw error;
      } finally {
        await connection.release();
      }
    },
    run: (steps) => runSteps(steps, executeOn(pool)),
    upsert: () => 'on duplicate key update value = values(value), event_id = values(event_id)',
    insertMissing: { start: 'insert ignore into', end: '' },
    hasReturning: false,
    jsonText: (column) => column,
    date: (ms) => new Date(ms),
    analyze: async (tables) => {
      await pool.query(`analyze table ${tables.join(', ')}`);
    },
    close: () => pool.end(),
  };
}
