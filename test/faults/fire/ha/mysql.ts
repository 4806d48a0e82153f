import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { promisify } from 'node:util';
import { MikroORM } from '@mikro-orm/core';
import { databaseOptions } from '../../../../mikro-orm.config.js';
import { freePorts } from './ports.js';
import { Unpacked, accountOf, hasProgram, serverFolder, type Command } from './programs.js';

const unpacked = new Unpacked('mysql', 'usr/sbin/mysqld');
const ofMysql = unpacked.folder;

/** The folder of MySQL's plugins. */
export const mysqlPlugins = `${ofMysql}/usr/lib/mysql/plugin`;

export const hasMysql = unpacked.isThere;

/** Debian: mariadb-server-core. */
export const hasMariadb = hasProgram('mariadbd') && hasProgram('mariadb-install-db');

const MYSQLD: Command = [
  ...unpacked.command(`${ofMysql}/usr/lib/mysql/private`),
  '--no-defaults',
  `--lc-messages-dir=${ofMysql}/usr/share/mysql`,
  `--character-sets-dir=${ofMysql}/usr/share/mysql/charsets`,
  `--plugin-dir=${mysqlPlugins}`,
];

const run = ([program, ...args]: Command) => promisify(execFile)(program, args, accountOf('mysql'));

/** MySQL or MariaDB, which can be frozen and killed. */
export class MysqlServer {
  readonly #kind: 'mysql' | 'mariadb';
  readonly #command: Command;
  readonly #folder: string;
  #process: ChildProcess | undefined;

  private constructor(
    kind: 'mysql' | 'mariadb',
    command: Command,
    folder: string,
    readonly port: number,
  ) {
    this.#kind = kind;
    this.#command = command;
    this.#folder = folder;
  }

  /** A new server that is not started. @param folder for its data, which the server makes. */
  static async mariadb(folder: string, settings: readonly string[]): Promise<MysqlServer> {
    const data = [`--datadir=${folder}`, ...settings];
    const install = ['--no-defaults', '--auth-root-authentication-method=normal', '--skip-test-db'];
    await run(['mariadb-install-db', ...install, ...data]);
    return new MysqlServer('mariadb', ['mariadbd', '--no-defaults', ...data], folder, await freePort());
  }

  /** A new server that is not started. @param folder for its data, which the server makes. */
  static async mysql(folder: string, settings: readonly string[]): Promise<MysqlServer> {
    const data = `--datadir=${folder}`;
    await run([...MYSQLD, data, '--initialize-insecure']);
    const command: Command = [...MYSQLD, data, '--mysqlx=OFF', '--secure-file-priv=NULL', ...settings];
    return new MysqlServer('mysql', command, folder, await freePort());
  }

  /** @param account without a password. */
  url(database: string, account = 'root'): string {
    return `${this.#kind}://${account}@127.0.0.1:${this.port}/${database}`;
  }

  async start(): Promise<void> {
    const [program, ...args] = this.#command;
    const own = [
      '--bind-address=127.0.0.1',
      `--port=${this.port}`,
      `--socket=${this.#folder}/server.sock`,
      `--pid-file=${this.#folder}/server.pid`,
      // An attempt that was given up leaves a thread of the server that continues to wait.
      '--max-connections=500',
      '--innodb-buffer-pool-size=64M',
    ];
    this.#process = spawn(program, [...args, ...own], { stdio: 'ignore', ...accountOf('mysql') });
    await this.until('select 1');
  }

  /** Runs a statement on its own connection, without a proxy. */
  async execute<Row>(sql: string, database = 'information_schema'): Promise<Row[]> {
    const options = await databaseOptions(this.url(database));
    const orm = await MikroORM.init({
      ...options,
      entities: [],
      ensureDatabase: false,
      discovery: { warnWhenNoEntities: false },
    });
    try {
      return await orm.em.getConnection().execute<Row[]>(sql);
    } finally {
      await orm.close(true);
    }
  }

  /** Waits until a statement returns a row. */
  async until(sql: string): Promise<void> {
    for (let tries = 1; ; tries++) {
      const rows = await this.execute(sql).catch(() => []);
      if (rows.length > 0) return;
      if (tries > 600 || !this.isRunning) throw new Error(`${this.#folder} does not come to: ${sql}`);
      await setTimeout(50);
    }
  }

  /** Kills it, so that it cannot finish anything. */
  async kill(): Promise<void> {
    const server = this.#process;
    if (!server || !this.isRunning) return;
    const exit = once(server, 'exit');
    server.kill('SIGKILL');
    await exit;
  }

  /** Freezes it, like a host that swaps: the connections stay, and nobody answers. */
  freeze(): void {
    this.#process?.kill('SIGSTOP');
  }

  thaw(): void {
    this.#process?.kill('SIGCONT');
  }

  get isRunning(): boolean {
    return this.#process?.exitCode === null && this.#process.signalCode === null;
  }
}

/** The number of commits that wait for a replica. */
const WAITING = 'Rpl_semi_sync_source_wait_sessions';

const statusIsPositive = (name: string) =>
  `select 1 from performance_schema.global_status where variable_name = '${name}' and variable_value > 0`;

/** A source of MySQL whose commits wait for a replica, however long it takes. */
export class MysqlPair {
  readonly #folder: string;
  #source!: MysqlServer;
  #replica: MysqlServer | undefined;
  #servers = 0;
  readonly #all: MysqlServer[] = [];

  private constructor(folder: string) {
    this.#folder = folder;
  }

  static async start(): Promise<MysqlPair> {
    const pair = new MysqlPair(await serverFolder('mysql', 'mysql'));
    try {
      pair.#source = await pair.#start();
      await takeWrites(pair.#source);
      await pair.addReplica();
    } catch (error) {
      await pair.stop();
      throw error;
    }
    return pair;
  }

  get source(): MysqlServer {
    return this.#source;
  }

  get replica(): MysqlServer {
    if (!this.#replica) throw new Error('There is no replica');
    return this.#replica;
  }

  async untilCommitsWait(): Promise<void> {
    await this.#source.until(statusIsPositive(WAITING));
  }

  /** Adds a replica that commits wait for. Until it is there, they wait. @param replica by default a new one. */
  async addReplica(replica?: MysqlServer): Promise<void> {
    this.#replica = replica ?? (await this.#start());
    for (const sql of [
      'set global super_read_only = on',
      'set global rpl_semi_sync_source_enabled = off',
      'set global rpl_semi_sync_replica_enabled = on',
      `change replication source to source_host = '127.0.0.1', source_port = ${this.#source.port}, source_user = 'root',
        source_auto_position = 1, source_connect_retry = 1, get_source_public_key = 1`,
      'start replica',
    ])
      await this.#replica.execute(sql);
    await this.#source.until(statusIsPositive('Rpl_semi_sync_source_clients'));
  }

  /** Stops writes to the source, and waits until the replica has everything. */
  async quiesce(): Promise<void> {
    await this.#source.execute('set global super_read_only = on');
    const [row] = await this.#source.execute<{ done: string }>('select @@global.gtid_executed as done');
    await this.replica.execute(`select wait_for_executed_gtid_set('${row?.done}')`);
  }

  /** Makes the replica the source. @returns the previous source, which may still run. */
  async promote(): Promise<MysqlServer> {
    const before = this.#source;
    await this.replica.execute('stop replica io_thread');
    // It must also apply what it has received.
    await this.replica.execute(
      `select wait_for_executed_gtid_set(
         (select received_transaction_set from performance_schema.replication_connection_status))`,
    );
    await this.replica.execute('stop replica');
    await this.replica.execute('reset replica all');
    await takeWrites(this.replica);
    this.#source = this.replica;
    this.#replica = undefined;
    return before;
  }

  async stop(): Promise<void> {
    await Promise.all(this.#all.map((server) => server.kill()));
    await rm(this.#folder, { recursive: true, force: true });
  }

  async #start(): Promise<MysqlServer> {
    const id = ++this.#servers;
    const server = await MysqlServer.mysql(path.join(this.#folder, `server_${id}`), [
      `--server-id=${id}`,
      '--gtid-mode=ON',
      '--enforce-gtid-consistency=ON',
      '--super-read-only=ON',
      // `super_read_only` takes a global lock, under which statements wait for row locks that nobody can release.
      '--innodb-lock-wait-timeout=2',
      '--plugin-load=semisync_source.so;semisync_replica.so',
      `--rpl-semi-sync-source-timeout=${24 * 60 * 60 * 1000}`,
      '--rpl-semi-sync-source-wait-point=AFTER_SYNC',
    ]);
    this.#all.push(server);
    await server.start();
    return server;
  }
}

async function takeWrites(server: MysqlServer): Promise<void> {
  await server.execute('set global rpl_semi_sync_source_enabled = on');
  await server.execute('set global super_read_only = off');
  await server.execute('set global read_only = off');
}

async function freePort(): Promise<number> {
  const [port = 0] = await freePorts(1);
  return port;
}
