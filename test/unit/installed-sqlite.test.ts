import { installedSqlite } from '../../src/database/drivers/installed-sqlite.js';

const ORDER = ['@mikro-orm/sqlite', '@mikro-orm/better-sqlite', '@mikro-orm/libsql'];

const missing = (code: string) => Object.assign(new Error(code), { code });

/** @returns the names that were tried, and what was found. */
async function find(installed: readonly string[], error = missing('ERR_MODULE_NOT_FOUND')) {
  const tried: string[] = [];
  const found = await installedSqlite((name) => {
    tried.push(name);
    return installed.includes(name) ? Promise.resolve(name) : Promise.reject(error);
  }).catch((error: unknown) => error);
  return { tried, found };
}

describe('a URL that begins with sqlite:', () => {
  test('takes the first driver that is installed, and loads no other', async () => {
    for (const [i, name] of ORDER.entries())
      for (const installed of [[name], ORDER.slice(i)])
        expect(await find(installed)).toEqual({ tried: ORDER.slice(0, i + 1), found: name });
  });

  test('reports the last one that is missing, and at once a driver that does not load', async () => {
    for (const code of ['ERR_MODULE_NOT_FOUND', 'MODULE_NOT_FOUND'])
      expect(await find([], missing(code))).toEqual({ tried: ORDER, found: missing(code) });
    const broken = missing('ERR_DLOPEN_FAILED');
    expect(await find(ORDER.slice(1), broken)).toEqual({ tried: ORDER.slice(0, 1), found: broken });
  });
});
