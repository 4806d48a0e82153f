import { distribute, type DistributeOptions } from '../../../../migrations/index.js';
import type { Work } from '../run.js';

export const runDistribution: Work<[DistributeOptions]> = async ({ orm, terminal }, options) => {
  const result = await distribute(orm, options);
  const { by, nodes, placed } = result;
  await terminal.result(result, () => [
    ...placed.map(({ table, placement }) => `Placed ${table} ${placement}`),
    `The tables are distributed by ${by}; ${nodes} nodes take rows.${placed.length === 0 ? '' : ' Start your services again.'}`,
  ]);
};
