import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { MikroORM } from '@mikro-orm/core';
import { adkEntities, migrate } from '../../../src/index.js';
import { isMikroOrm7 } from '../../support/mikro-orm.js';
import { availableDatabases, createDatabase, type DatabaseName } from '../../support/servers.js';
import type { Way } from './way-process.js';

/** The most sources that a warm call may enter. If you add to one of these paths, shorten it elsewhere. */
const MOST_FILES: Record<string, number> = { appendEvent: 20, getSession: 18, since: 22 };

const MEASURED: readonly DatabaseName[] = ['better-sqlite', 'postgresql'];

for (const name of availableDatabases()) {
  if (!MEASURED.includes(name)) continue;
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
      for (const [call, { functions, calls }] of Object.entries(ways))
        process.stdout.write(`${name} ${call}\n${linesOf(functions)}\n${calls.join('\n')}\n`);
      if (name === 'postgresql' && !isMikroOrm7)
        expect(Object.keys(ways['appendEvent']!.functions)).toEqual((await listed()).sort());
      expect(Object.keys(ways)).toEqual(Object.keys(MOST_FILES));
      for (const [call, { functions }] of Object.entries(ways)) {
        const entered = Object.keys(functions);
        expect({ call, tooMany: entered.slice(MOST_FILES[call]) }).toEqual({ call, tooMany: [] });
      }
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

const linesOf = (functions: Way['functions']) =>
  Object.entries(functions)
    .map(([source, count]) => `${String(count).padStart(4)} ${source}`)
    .join('\n');
