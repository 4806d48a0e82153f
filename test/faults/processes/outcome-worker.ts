import { Context, InvocationContext, PluginManager } from '@google/adk';
import { adkServices } from '../../../src/index.js';
import { openOrm, type Database } from './open-orm.js';

// A process that runs a call of a tool. If told to hang, it stops for good before the commit.

export interface Job {
  database: Database;
  hangs: boolean;
}

/** `hangs` in the middle of a transaction whose rows are written; the result; or an error. */
export type Report = 'hangs' | { result: number } | { error: string };

async function work({ database, hangs }: Job): Promise<void> {
  const orm = await openOrm(database);
  const { sessionService, exactlyOnce } = adkServices(orm.em);
  const session = await sessionService.getSession({ appName: 'app', userId: 'ada', sessionId: 's' });
  if (!session) throw new Error('There is no session.');
  const invocationContext = new InvocationContext({
    invocationId: 'i',
    session,
    sessionService,
    pluginManager: new PluginManager(),
  });
  const toolContext = new Context({ invocationContext, functionCallId: 'call_0' });
  const result = await exactlyOnce(toolContext, async (tx) => {
    const { pid } = process;
    await tx.getConnection().execute('insert into ledger (pid) values (?)', [pid], 'run', tx.getTransactionContext());
    if (hangs) {
      report('hangs');
      await new Promise(() => undefined);
    }
    return pid;
  });
  await orm.close(true);
  report({ result });
}

function report(message: Report): void {
  process.send?.(message);
}

process.on('message', (job: Job) => {
  work(job).catch((error: unknown) => report({ error: String(error) }));
});
process.on('disconnect', () => process.exit());
