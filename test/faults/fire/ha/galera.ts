import { execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, chown, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { MikroORM } from '@mikro-orm/core';
import { MariaDbDriver, type AbstractSqlConnection } from '@mikro-orm/mariadb';
import { freePorts } from './ports.js';

const PROVIDERS = ['/usr/lib/galera/libgalera_smm.so', '/usr/lib64/galera-4/libgalera_smm.so'];
const provider = PROVIDERS.find((file) => existsSync(file));

/** Debian: mariadb-server, galera-4, rsync. */
export const hasGalera =
  provider !== undefined &&
  ['mariadbd', 'mariadb-install-db', 'rsync'].every((name) => spawnSync('which', [name]).status === 0);

interface Ports {
  sql: number;
  group: number;
  stateTransfer: number;
  incremental: number;
}

/** A server of a cluster. */
export class Node {
  readonly #peers: string;
  readonly #user: string;
  #process: ChildProcess | undefined;

  constructor(
    readonly folder: string,
    readonly ports: Ports,
    peers: string,
    user: string,
  ) {
    this.#peers = peers;
    this.#user = user;
  }

  url(database: string): string {
    return `mariadb://root@127.0.0.1:${this.ports.sql}/${database}`;
  }

  /** @param isFirst whether it begins the cluster, which the others join. */
  async start(isFirst = false): Promise<void> {
    const { sql, group, stateTransfer, incremental } = this.ports;
    this.#process = spawn(
      'mariadbd',
      [
        '--no-defaults',
        `--user=${this.#user}`,
        `--datadir=${this.folder}`,
        '--bind-address=127.0.0.1',
        `--port=${sql}`,
        `--socket=${this.folder}/server.sock`,
        `--pid-file=${this.folder}/server.pid`,
        `--log-error=${this.folder}/server.log`,
        '--max-connections=300',
        '--binlog-format=ROW',
        '--innodb-autoinc-lock-mode=2',
        '--innodb-buffer-pool-size=64M',
        '--wsrep-on=ON',
        `--wsrep-provider=${provider}`,
        '--wsrep-sst-method=rsync',
        `--wsrep-cluster-address=gcomm://${this.#peers}`,
        `--wsrep-node-address=127.0.0.1:${group}`,
        `--wsrep-sst-receive-address=127.0.0.1:${stateTransfer}`,
        `--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:${group};ist.recv_addr=127.0.0.1:${incremental};gcache.size=32M`,
        ...(isFirst ? ['--wsrep-new-cluster'] : []),
      ],
      { stdio: 'ignore' },
    );
    for (let tries = 1; !(await this.#isReady()); tries++) {
      if (tries > 300 || this.#process.exitCode !== null) throw new Error(`See ${this.folder}/server.log`);
      await setTimeout(200);
    }
  }

  async #isReady(): Promise<boolean> {
    const rows = await this.execute<{ Value: string }>(`show status like 'wsrep_ready'`).catch(() => []);
    return rows[0]?.Value === 'ON';
  }

  /** Whether it takes statements and sees this many nodes. */
  async isOf(nodes: number): Promise<boolean> {
    const rows = await this.execute<{ Value: string }>(
      "show status where variable_name in ('wsrep_cluster_size', 'wsrep_ready')",
    ).catch(() => []);
    return rows.map(({ Value }) => Value).join() === `${nodes},ON`;
  }

  async execute<Row>(sql: string): Promise<Row[]> {
    const orm = await MikroORM.init({
      driver: MariaDbDriver,
      clientUrl: this.url('information_schema'),
      entities: [],
      discovery: { warnWhenNoEntities: false },
    });
    try {
      const connection: AbstractSqlConnection = orm.em.getDriver().getConnection();
      return await connection.execute<Row[]>(sql);
    } finally {
      await orm.close(true);
    }
  }

  /** Kills it, so that it cannot finish anything. */
  async kill(): Promise<void> {
    const server = this.#process;
    if (!server || server.exitCode !== null || server.signalCode !== null) return;
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
}

/** Three servers of MariaDB with Galera, all of which take writes. */
export class Galera {
  readonly #folder: string;

  private constructor(
    readonly nodes: readonly Node[],
    folder: string,
  ) {
    this.#folder = folder;
  }

  static async start(): Promise<Galera> {
    const folder = await mkdtemp(path.join(tmpdir(), 'adk-galera-'));
    // If root starts a server, it runs as another user.
    const isRoot = process.getuid?.() === 0;
    const user = isRoot ? 'mysql' : execFileSync('id', ['-un'], { encoding: 'utf8' }).trim();
    const id = (which: string) => Number(execFileSync('id', [which, user], { encoding: 'utf8' }));
    await chmod(folder, 0o755);
    const ports = await freePorts(12);
    const portsOf = (node: number): Ports => {
      const [sql = 0, group = 0, stateTransfer = 0, incremental = 0] = ports.slice(4 * node);
      return { sql, group, stateTransfer, incremental };
    };
    const peers = [0, 1, 2].map((node) => `127.0.0.1:${portsOf(node).group}`).join();
    const nodes = [0, 1, 2].map((node) => new Node(path.join(folder, String(node)), portsOf(node), peers, user));
    for (const node of nodes) {
      await mkdir(node.folder);
      if (isRoot) await chown(node.folder, id('-u'), id('-g'));
      execFileSync(
        'mariadb-install-db',
        [
          '--no-defaults',
          `--user=${user}`,
          `--datadir=${node.folder}`,
          '--auth-root-authentication-method=normal',
          '--skip-test-db',
        ],
        { stdio: 'ignore' },
      );
    }
    const galera = new Galera(nodes, folder);
    try {
      for (const [i, node] of nodes.entries()) await node.start(i === 0);
    } catch (error) {
      await galera.stop();
      throw error;
    }
    return galera;
  }

  /** Waits until all nodes see each other and take statements. */
  async untilWhole(): Promise<void> {
    for (let tries = 1; ; tries++) {
      const whole = await Promise.all(this.nodes.map((node) => node.isOf(this.nodes.length)));
      if (whole.every(Boolean)) return;
      if (tries > 300) throw new Error(`The cluster in ${this.#folder} does not come together`);
      await setTimeout(200);
    }
  }

  async stop(): Promise<void> {
    for (const node of this.nodes) node.thaw();
    await Promise.all(this.nodes.map((node) => node.kill()));
    await rm(this.#folder, { recursive: true, force: true });
  }
}
