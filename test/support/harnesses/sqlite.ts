import { isMikroOrm7 } from '../mikro-orm.js';
import { isChosen } from '../run.js';
import type { DriverSetting, FileDatabase } from './database.js';
import { createFile } from './files.js';

const driver = async () => (await import('@mikro-orm/sqlite')).SqliteDriver;

const SYNCHRONOUS = ['off', 'normal', 'full', 'extra'];

/** Settings of better-sqlite3, which MikroORM 7's package for SQLite uses. */
export const SETTINGS_OF_BETTER_SQLITE: readonly DriverSetting[] = [
  {
    name: 'defaultSafeIntegers',
    onConnection: (raw: { defaultSafeIntegers(on: boolean): void }) => raw.defaultSafeIntegers(true),
  },
];

export const sqlite: FileDatabase = {
  name: 'sqlite',
  kind: 'file',
  dialect: 'sqlite',
  title: 'SQLite',
  packageName: '@mikro-orm/sqlite',
  driver,
  isOfUrl: true,
  isAvailable: () => isChosen('sqlite'),
  create: async (template) => createFile(await driver(), template),
  template: (orm) => Promise.resolve(orm.config.get('dbName')),
  get unreachable() {
    const secret = 'hunter2';
    return { options: { dbName: `/dev/null/${secret}/agent.db` }, secret };
  },
  columns: {
    json: (column) => column,
    refuseOtherThanJson: false,
    double: (column) => column,
    autoIncrement: 'integer',
    bytes: 'blob',
    keepLargeEventsInParts: false,
    now: "unixepoch('now', 'subsec') * 1000",
  },
  connection: {
    harmless: {
      pragmas: [
        'pragma reverse_unordered_selects = on',
        'pragma case_sensitive_like = on',
        'pragma recursive_triggers = on',
      ],
    },
    refused: [
      {
        set: 'pragma foreign_keys = off',
        named: /foreign_keys = off/,
        advice: /pragma foreign_keys = on/,
      },
    ],
    readOnly: ['pragma query_only = on', 'pragma query_only = off', 'SQLITE_READONLY'],
    impatience: 'pragma busy_timeout = 0',
    // On MikroORM 7 calls wait for the connection as long as it takes.
    hasPatientPool: !isMikroOrm7,
  },
  schema: {
    everything: `select type, name, sql from sqlite_master`,
    tables: `select type, name from sqlite_master where type = 'table'`,
    describe: async (query) => [
      await query('select type, name, tbl_name, sql from sqlite_master order by name'),
      await query('pragma journal_mode'),
    ],
    checksForeignKeys: false,
    readsOtherSchemas: false,
    migrationLock: 'transaction',
    migrationUnlock: /^commit$/,
    dropIndex: (index) => `drop index ${index}`,
    damageKeys: [],
  },
  plan: {
    analyze: 'analyze',
    async scans(explain) {
      const rows = (await explain('explain query plan')) as { detail: string }[];
      return rows.map(({ detail }) => detail).filter((line) => /^SCAN (adk_|[ce]$|[ce] )/.test(line));
    },
    async wholeSessions(explain) {
      const rows = (await explain('explain query plan')) as { detail: string }[];
      return rows.map(({ detail }) => detail).filter((line) => /^SEARCH (adk_events|e) .*session_id=\?\)$/.test(line));
    },
  },
  statements: {
    append: (scopes) => [
      'begin',
      'update sessions',
      'insert events',
      ...scopes.map((scope) => `insert ${scope}_states`),
      'commit',
    ],
    poll: { text: 'pragma_data_version', hasTables: false },
    lock: 'update sessions',
    lockEverything: true,
  },
  durability: {
    async defaultOf(query) {
      const [row] = await query<{ synchronous: number }>('pragma synchronous');
      return { value: SYNCHRONOUS[row?.synchronous ?? -1], isKept: true };
    },
  },
  driverOptions: { harmless: isMikroOrm7 ? SETTINGS_OF_BETTER_SQLITE : [], refused: [] },
  otherStores: {
    keepOrderOfRows: true,
    takeEmptyText: true,
    quote: '"',
    goTypes: ['text', 'text', 'text', 'blob', 'numeric', 'datetime'],
    // A text with the host's offset.
    goTime: (seconds) => `2020-09-13 14:26:${seconds}+02:00`,
    pythonTypes: ['TEXT', 'DATETIME'],
    pythonTime: 1600000000123.456,
  },
};
