import { LlmAgent } from '@google/adk';
import { adkServices, runTurn } from '../../../src/index.js';
import { scriptedModel } from '../../../src/testing/index.js';
import { openOrm, type Database } from './open-orm.js';

// A worker that runs a turn for each session with stored answers. If told to hang, it never leaves its first call of the model.

export interface Job {
  database: Database;
  hangs: boolean;
}

/** What a worker reports: that its run hangs, what the agent has said, or an error. */
export type Report = 'hangs' | { said: string[] } | { error: string };

async function work({ database, hangs }: Job): Promise<void> {
  const orm = await openOrm(database);
  const services = adkServices(orm.em, { leases: { ttlMs: 5_000 }, sessions: { onAnsweredCall: 'reject' } });
  const agent = new LlmAgent({
    name: 'clerk',
    model: scriptedModel([`I am ${process.pid}.`]),
    beforeModelCallback: async () => {
      if (!hangs) return undefined;
      report('hangs');
      return new Promise(() => undefined);
    },
  });
  const { calls } = await services.sessionService.findAnsweredCalls({ appName: 'app' });
  const said: string[] = [];
  for (const key of calls)
    for await (const { content } of runTurn(services, { key, agent, waitMs: 120_000 }))
      said.push(content?.parts?.[0]?.text ?? '');
  await orm.close(true);
  report({ said });
}

function report(message: Report): void {
  process.send?.(message);
}

process.on('message', (job: Job) => {
  work(job).catch((error: unknown) => report({ error: String(error) }));
});
process.on('disconnect', () => process.exit());
