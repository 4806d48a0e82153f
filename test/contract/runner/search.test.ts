import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { databasesOfExamples, createDatabase } from '../../support/servers.js';

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
      const env = { ...process.env, ADK_DATABASE_URL: database.url };
      const example = await promisify(execFile)(process.execPath, ['--import', 'tsx', 'examples/search.ts'], { env });
      expect(example.stdout).toBe(OUTPUT);
    } finally {
      await database.drop();
    }
  },
);
