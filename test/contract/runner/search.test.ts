import { databasesOfExamples, createDatabase } from '../../support/servers.js';
import { useExample } from './example.js';

const { run } = useExample('examples/search.ts');

const OUTPUT = `After three messages
  window: lisbon, vienna
  flight: lisbon
  train: vienna
Lisbon is taken back to its first message
  window: vienna
  flight: lisbon
  train: vienna
Vienna is deleted
  window: nothing
  flight: lisbon
  train: nothing
search is 0 entries behind
`;

test.each(databasesOfExamples())(
  'J5 the example of a search finds what is there, and not what is gone, on %s',
  async (name) => {
    const database = await createDatabase(name);
    try {
      expect(await run({ ADK_DATABASE_URL: database.url })).toEqual({ output: OUTPUT, errors: '', exitCode: 0 });
    } finally {
      await database.drop();
    }
  },
);
