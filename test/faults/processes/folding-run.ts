import { fork } from 'node:child_process';
import { once } from 'node:events';
import type { MikroORM } from '@mikro-orm/core';
import { EventLog } from '../../../src/index.js';
import { folded, resultOf, tablesOf, type Folded } from '../../support/fold.js';
import { FoldedLog } from '../../support/folded-log.js';
import { ERASED, type FoldingJob } from './folding-worker.js';
import type { Database } from './open-orm.js';

const PROCESSES = 4;

/** What is compared of one run. */
export interface FoldingResult {
  tables: Folded;
  /** Of a reader from the beginning. */
  whole: Folded;
  /** Of readers that followed the log meanwhile, without the erased user. */
  followed: Folded[];
}

/** Several processes do random things to one app, while readers follow the log. */
export async function foldingRun(
  worker: string,
  { orm, database }: { orm: MikroORM; database: Database },
  { label, steps }: { label: string; steps: number },
): Promise<FoldingResult> {
  const appName = `app ${label}`;
  const stop = new AbortController();
  const log = new EventLog(orm.em, { pollIntervalMs: 20 });
  const start = await log.complete().head();
  const followers = Array.from({ length: 2 }, async () => {
    const fold = new FoldedLog();
    let cursor = start;
    for await (const entry of log.complete().watch(cursor, { appName }, { signal: stop.signal })) {
      fold.add(entry);
      cursor = entry.cursor;
    }
    for await (const entry of log.complete().since(cursor, { appName })) fold.add(entry);
    return fold;
  });
  try {
    await Promise.all(
      Array.from({ length: PROCESSES }, async (_, i) => {
        const child = fork(worker, { execArgv: [] });
        try {
          child.send({ database, label: `${label} ${i}`, appName, steps } satisfies FoldingJob);
          const [message] = (await once(child, 'message')) as [{ error?: string }];
          if (message.error !== undefined) throw new Error(message.error);
        } finally {
          if (child.connected) child.disconnect();
          if (child.exitCode === null) await once(child, 'exit');
        }
      }),
    );
  } finally {
    stop.abort();
  }
  const read = await Promise.all(followers);
  return {
    tables: await tablesOf(orm, appName),
    whole: await folded(log, appName),
    followed: read.map((fold) => resultOf(fold)),
  };
}

/** Leaves out the erased user, and the state of the app, which they may have written last. */
export function withoutErased({ sessions, users }: Folded): Folded {
  const others = <T>(of: Record<string, T>) =>
    Object.fromEntries(Object.entries(of).filter(([id]) => !id.includes(JSON.stringify(ERASED))));
  return { sessions: others(sessions), users: others(users), apps: {} };
}
