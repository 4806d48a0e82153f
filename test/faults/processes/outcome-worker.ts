import { Context, FunctionTool, InvocationContext, LlmAgent, PluginManager } from '@google/adk';
import { adkServices, runTurn, type AdkServices } from '../../../src/index.js';
import { scriptedModel } from '../../../src/testing/index.js';
import { openOrm, type Database } from './open-orm.js';

// A process that runs a call of a tool, or a turn whose model asks for two. If told to hang, it stops for good before the commit of
// the call; in a turn it always does so in the second tool.

export interface Job {
  database: Database;
  hangs: boolean;
  isTurn?: boolean;
}

/** `hangs` in the middle of a transaction whose rows are written, or of the second tool; the result; or an error. */
export type Report = 'hangs' | { result: number } | { error: string };

async function work({ database, hangs, isTurn }: Job): Promise<void> {
  const orm = await openOrm(database);
  const services = adkServices(orm.em);
  if (isTurn) return turn(services);
  const { sessionService, exactlyOnce } = services;
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

async function turn(services: AdkServices): Promise<void> {
  const tool = (name: string, execute: () => unknown) => new FunctionTool({ name, description: name, execute });
  const mail = () => {
    report('hangs');
    return new Promise<never>(() => undefined);
  };
  const parts = ['charge', 'mail'].map((name) => ({ functionCall: { id: name, name, args: {} } }));
  const model = scriptedModel([{ role: 'model', parts }]);
  const agent = new LlmAgent({
    name: 'clerk',
    model,
    tools: [tool('charge', () => ({ receipt: 17 })), tool('mail', mail)],
  });
  const key = { appName: 'app', userId: 'ada', sessionId: 's' };
  for await (const _ of runTurn(services, { key, agent, newMessage: { role: 'user', parts: [{ text: 'Pay.' }] } }));
}

function report(message: Report): void {
  process.send?.(message);
}

process.on('message', (job: Job) => {
  work(job).catch((error: unknown) => report({ error: String(error) }));
});
process.on('disconnect', () => process.exit());
