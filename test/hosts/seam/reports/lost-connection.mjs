// Report for MikroORM 7.2 with PostgreSQL: `em.transactional` keeps a place in the pool for ever if the connection is lost while the
// transaction runs. After `pool.max` of them every statement of the process hangs. Expected: the pool opens a new connection.
import { EntitySchema, MikroORM } from '@mikro-orm/postgresql';

const Row = new EntitySchema({ name: 'Row', properties: { id: { type: 'integer', primary: true } } });
const options = { clientUrl: process.argv[2], entities: [Row], pool: { min: 0, max: 2 } };
const [orm, other] = await Promise.all([MikroORM.init(options), MikroORM.init(options)]);
for (let lost = 1; lost <= 2; lost++) {
  const transaction = orm.em.fork().transactional(async (em) => {
    await em.execute(`set application_name = 'lost'`);
    await other.em.execute(`select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'lost'`);
    await em.execute('select 1');
  });
  await transaction.catch(() => undefined);
}
setTimeout(() => {
  console.log('select 1 hangs');
  process.exit();
}, 2_000);
await orm.em.execute('select 1');
console.log('select 1 answers');
process.exit();
