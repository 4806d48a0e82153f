import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { MikroORM } from '@mikro-orm/core';
import { adkEntities, migrate } from '../../../src/index.js';
import { isMikroOrm7 } from '../../support/mikro-orm.js';
import { availableDatabases, createDatabase, type DatabaseName } from '../../support/servers.js';
import type { Way } from './way-process.js';

/** The most that a warm call may enter. If you add to one of these paths, shorten it elsewhere. */
const BUDGETS: Partial<Record<DatabaseName, Record<string, Budget>>> = {
  'better-sqlite': {
    appendEvent: { files: 20, functions: 90, calls: 15 },
    getSession: { files: 18, functions: 92, calls: 18 },
    since: { files: 22, functions: 121, calls: 22 },
  },
  postgresql: {
    appendEvent: { files: 20, functions: 90, calls: 15 },
    getSession: { files: 18, functions: 94, calls: 18 },
    since: { files: 22, functions: 123, calls: 22 },
  },
};

interface Budget {
  /** Sources in which a function is called. */
  files: number;
  functions: number;
  /** The length of the chain from the first call in the sources to the driver. */
  calls: number;
}

for (const name of availableDatabases()) {
  const budgets = BUDGETS[name];
  if (!budgets) continue;
  test(`a warm call enters few files on ${name}`, async () => {
    const database = await createDatabase(name);
    try {
      const orm = await MikroORM.init({ ...database.options, entities: adkEntities() });
      await migrate(orm);
      await orm.close(true);
      const child = fork('test/hosts/house/way-process.ts', [JSON.stringify({ name, url: database.url })], {
        execArgv: ['--import', 'tsx'],
      });
      const [ways] = (await once(child, 'message')) as [Record<string, Way>];
      child.disconnect();
      const found = Object.entries(ways).map(([call, way]) => [call, sizeOf(way)] as const);
      for (const [call, { functions, calls }] of Object.entries(ways))
        process.stdout.write(`${name} ${call}\n${linesOf(functions)}\n${calls.join('\n')}\n`);
      if (name === 'postgresql' && !isMikroOrm7)
        expect(Object.keys(ways['appendEvent']!.functions)).toEqual((await listed()).sort());
      for (const [call, size] of found) expect({ call, ...size }).toEqual({ call, ...most(size, budgets[call]!) });
    } finally {
      await database.drop();
    }
  });
}

/** The sources in the list of docs/architecture.md. */
async function listed(): Promise<string[]> {
  const text = await readFile('docs/architecture.md', 'utf8');
  const [, section = ''] = /^## An append(.*?)^## /ms.exec(text) ?? [];
  return Array.from(section.matchAll(/^src\/\S+/gm), ([source]) => source);
}

const sizeOf = ({ functions, calls }: Way): Budget => ({
  files: Object.keys(functions).length,
  functions: Object.values(functions).reduce((sum, count) => sum + count),
  calls: calls.length,
});

/** Lowers the size to the budget. */
const most = (size: Budget, budget: Budget): Budget => ({
  files: Math.min(size.files, budget.files),
  functions: Math.min(size.functions, budget.functions),
  calls: Math.min(size.calls, budget.calls),
});

const linesOf = (functions: Way['functions']) =>
  Object.entries(functions)
    .map(([source, count]) => `${String(count).padStart(4)} ${source}`)
    .join('\n');
