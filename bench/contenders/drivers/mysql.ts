import mysql, { type QueryResult } from 'mysql2/promise';
import { runSteps, type BareDriver, type Outcome, type Row, type Statement } from './bare-driver.js';

/** `mysql2`, with prepared statements. */
export function openMysql(url: string): BareDriver {
  const pool = mysql.createPool({ uri: url, connectionLimit: 10 });

  const executeOn =
    (connection: mysql.Pool | mysql.PoolConnection) =>
    async ({ text, values }: Statement): Promise<Outcome> => {
      const [result] = await connection.execute<QueryResult>(text, values as Parameters<typeof connection.execute>[1]);
      return Array.isArray(result) ? { rows: result as Row[], insertId: 0 } : { rows: [], insertId: result.insertId };
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
        connection.release();
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
