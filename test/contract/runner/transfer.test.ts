import { MikroORM } from '@mikro-orm/core';
import type { Event } from '@google/adk';
import { AdkEvent, adkEntities } from '../../../entities/index.js';
import { createDatabase, databasesOfExamples, type TestDatabase } from '../../support/servers.js';
import { useExample } from './example.js';

const { path, run } = useExample('examples/transfer.ts');

const KILLS = process.env['ADK_TEST_LONG'] ? 100 : 20;

describe.each(databasesOfExamples())('the example of a transfer on %s', (name) => {
  let database: TestDatabase;
  let orm: MikroORM | undefined;
  beforeEach(async () => {
    database = await createDatabase(name);
  });
  afterEach(async () => {
    await orm?.close(true);
    await database.drop();
  });

  test(`H6 each transfer takes effect once, though its process is killed ${KILLS} times`, async () => {
    const { errors, exitCode } = await run({ ADK_DATABASE_URL: database.url }, [path, String(KILLS)]);
    expect({ errors, exitCode }).toEqual({ errors: '', exitCode: 0 });

    orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
    const events = (await orm.em.fork().find(AdkEvent, {}, { orderBy: { seq: 'asc' } })).map(
      ({ data }) => data as Event,
    );
    const parts = events.flatMap(({ author, content }) => (content?.parts ?? []).map((part) => ({ author, ...part })));
    const asked = parts.filter(({ author, text }) => author === 'user' && text?.startsWith('Move 10 euros')).length;
    const answers = parts.filter(({ functionResponse }) => functionResponse?.name === 'move_money');
    const accounts = await orm.em.getConnection().execute('select name, euros from bank_accounts order by name');
    expect(accounts).toEqual([
      { name: 'current', euros: -10 * asked },
      { name: 'savings', euros: 10 * asked },
    ]);
    expect(answers.filter(({ functionResponse: of }) => of?.response?.['moved'] === 10)).toHaveLength(asked);
    // Processes were killed on either side of the commit, and nobody was left in doubt.
    const undone = answers.filter(({ functionResponse: of }) =>
      /did not take effect/.test(String(of?.response?.['error'])),
    );
    expect(undone.length).toBeGreaterThan(0);
    expect(answers).toHaveLength(asked + undone.length);
  }, 600_000);
});
