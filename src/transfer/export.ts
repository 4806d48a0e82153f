import type { Database } from '../database/calls/database.js';
import type { Sql } from '../database/dialects/dialect.js';
import type { OwnedRows, ExportReader } from '../owned/owned-rows.js';
import type { SessionKey } from '../model/keys.js';
import type { ErrorContext } from '../model/options.js';
import { eachName } from '../model/pages.js';
import type { ExportRecord } from '../model/records.js';

/** Reads what is stored of the kinds, app by app, in an order that is the same on every database. */
export async function* exportRecords(
  database: Database,
  call: ErrorContext,
  { appName, userId }: Partial<Pick<SessionKey, 'appName' | 'userId'>>,
  kinds: readonly OwnedRows[],
): AsyncGenerator<ExportRecord> {
  const reading: ExportReader = {
    run: (work) => database.call(call, () => database.run(work)),
    snapshot: (work) => database.call(call, () => database.snapshot(work)),
    call: (work) => database.call(call, work),
  };
  const exported = kinds.flatMap(({ records, nextApp }) => (records ? [{ records, nextApp }] : []));
  const nextOf = async (sql: Sql, after: string) => {
    const apps: string[] = [];
    for (const { nextApp } of exported)
      apps.push(...[await nextApp(sql, after, userId)].filter((app) => app !== undefined));
    return apps.sort(byBytes)[0];
  };
  for await (const app of eachName(appName, (after) => reading.run((sql) => nextOf(sql, after))))
    for (const { records } of exported) yield* records.read(reading, { appName: app, userId });
}

/** As databases order names: JavaScript compares UTF-16, which differs beyond its first 65,536 characters. */
const byBytes = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b));
