import { spawn, type ChildProcess } from 'node:child_process';
import { mkdir, rm, writeFile, chown } from 'node:fs/promises';
import path from 'node:path';
import { freePorts } from './ports.js';
import { executeAt, hasPostgresql } from './postgresql.js';
import { freezeAll, killAll, ofFolder, thawAll } from './processes.js';
import { accountOf, hasProgram, postgresqlFolder, serverFolder } from './programs.js';
import { listens, until } from './until.js';

/** Debian: patroni, etcd-server, haproxy. */
export const hasPatroni = hasPostgresql && ['patroni', 'etcd', 'haproxy'].every(hasProgram);

const NODES = 3;

/** The account that everything runs as. */
const ACCOUNT = 'postgres';

/** How long a node that does not answer remains the leader. Patroni 4 raises it to 20 s. */
const TTL_S = 8;

/** For clients and for the server. An attempt that was given up leaves a process of the server that continues to wait. */
const MAX_CONNECTIONS = 500;

/** The configuration of the whole cluster. */
const CLUSTER_SETTINGS = {
  ttl: TTL_S,
  loop_wait: 1,
  retry_timeout: 3,
  // Commits wait for a standby, and only a standby that has them all takes over. Strict: they wait even if there is none.
  synchronous_mode: true,
  synchronous_mode_strict: true,
  postgresql: {
    use_pg_rewind: true,
    parameters: {
      unix_socket_directories: '',
      shared_buffers: '32MB',
      max_connections: MAX_CONNECTIONS,
      max_wal_size: '32MB',
      min_wal_size: '2MB',
      wal_keep_size: '64MB',
    },
  },
};

interface Ports {
  sql: number;
  rest: number;
}

/** Patroni and the server that it runs. */
export class PatroniNode {
  readonly #etcd: string;

  constructor(
    readonly name: string,
    readonly folder: string,
    readonly ports: Ports,
    etcd: string,
  ) {
    this.#etcd = etcd;
  }

  async create(): Promise<void> {
    const { sql, rest } = this.ports;
    const { uid, gid } = accountOf(ACCOUNT);
    await mkdir(this.folder);
    if (uid !== undefined && gid !== undefined) await chown(this.folder, uid, gid);
    const config = {
      scope: 'cluster',
      name: this.name,
      log: { dir: this.folder },
      restapi: { listen: `127.0.0.1:${rest}`, connect_address: `127.0.0.1:${rest}` },
      // Not `etcd3`: with it a frozen leader of Patroni 3.0.2 may take the lead back from the next one, whose acknowledged
      // commits are then lost (patroni/patroni#2689).
      etcd: { host: this.#etcd },
      bootstrap: { dcs: CLUSTER_SETTINGS, initdb: [{ encoding: 'UTF8' }, { 'wal-segsize': '1' }] },
      postgresql: {
        listen: `127.0.0.1:${sql}`,
        connect_address: `127.0.0.1:${sql}`,
        data_dir: this.#data,
        ...(postgresqlFolder === '' ? {} : { bin_dir: postgresqlFolder }),
        pgpass: path.join(this.folder, 'pgpass'),
        authentication: { superuser: { username: 'postgres' }, replication: { username: 'postgres' } },
        pg_hba: ['host all all 127.0.0.1/32 trust', 'host replication all 127.0.0.1/32 trust'],
      },
      watchdog: { mode: 'off' },
    };
    // JSON is YAML.
    await writeFile(this.#config, JSON.stringify(config, undefined, 2));
  }

  /** Starts Patroni, which starts the server. Does not wait until they are ready. */
  start(): void {
    spawn('patroni', [this.#config], { stdio: 'ignore', ...accountOf(ACCOUNT) });
  }

  /** The URL of the node itself, without a proxy. */
  url(database: string): string {
    return `postgresql://postgres@127.0.0.1:${this.ports.sql}/${database}`;
  }

  /** Whether Patroni says that it is the leader. HAProxy asks the same. */
  async isLeader(): Promise<boolean> {
    return (await this.ask('OPTIONS', '/primary')) === 200;
  }

  /** @returns the status, if it answers. */
  async ask(method: 'OPTIONS' | 'POST', what: string, body?: Record<string, string>): Promise<number | undefined> {
    const url = `http://127.0.0.1:${this.ports.rest}${what}`;
    // Patroni answers a switchover when it is done.
    const signal = AbortSignal.timeout(method === 'OPTIONS' ? 1_000 : 30_000);
    try {
      return (await fetch(url, { method, signal, ...(body && { body: JSON.stringify(body) }) })).status;
    } catch {
      return undefined;
    }
  }

  /** Freezes it, like a host that swaps: the connections stay, and nobody answers. */
  freeze(): void {
    freezeAll(ofFolder(this.folder));
  }

  /** Thaws only the server: while Patroni is frozen, it believes that it is the primary. */
  thawServer(): void {
    thawAll(ofFolder(this.#data));
  }

  thaw(): void {
    thawAll(ofFolder(this.folder));
  }

  /** Kills Patroni and the server at once, like a host that loses its power. */
  async kill(): Promise<void> {
    await killAll(ofFolder(this.folder));
    // Names the id of a process. After a restart of a host nobody has that id, but here the killed process may remain as a
    // zombie, and the server would not start.
    await rm(path.join(this.#data, 'postmaster.pid'), { force: true });
  }

  get #config(): string {
    return path.join(this.folder, 'patroni.yml');
  }

  get #data(): string {
    return path.join(this.folder, 'data');
  }
}

/** The nodes, etcd, which knows their leader, and HAProxy, which connects clients to it. */
export class PatroniCluster {
  readonly #folder: string;
  readonly #ports: Readonly<Record<'etcd' | 'peers' | 'haproxy' | 'health', number>>;
  readonly nodes: readonly PatroniNode[];
  #etcd: ChildProcess | undefined;
  #haproxy: ChildProcess | undefined;

  private constructor(
    folder: string,
    ports: Readonly<Record<'etcd' | 'peers' | 'haproxy' | 'health', number>>,
    nodes: readonly Ports[],
  ) {
    this.#folder = folder;
    this.#ports = ports;

    this.nodes = nodes.map((node, i) => {
      const name = `node_${i + 1}`;
      return new PatroniNode(name, path.join(folder, name), node, `127.0.0.1:${ports.etcd}`);
    });
  }

  static async start(): Promise<PatroniCluster> {
    const folder = await serverFolder('patroni', ACCOUNT);
    const [etcd = 0, peers = 0, haproxy = 0, health = 0, ...free] = await freePorts(4 + 2 * NODES);
    const nodes = Array.from({ length: NODES }, (_, i) => ({ sql: free[2 * i] ?? 0, rest: free[2 * i + 1] ?? 0 }));
    const cluster = new PatroniCluster(folder, { etcd, peers, haproxy, health }, nodes);
    try {
      await cluster.#startEtcd();
      for (const node of cluster.nodes) {
        await node.create();
        node.start();
      }
      await cluster.untilWhole();
      await cluster.#startHaproxy();
    } catch (error) {
      await cluster.stop();
      throw error;
    }
    return cluster;
  }

  /** The URL through HAProxy. */
  url(database: string): string {
    return `postgresql://postgres@127.0.0.1:${this.#ports.haproxy}/${database}`;
  }

  /** Waits for a leader. @param before a leader that does not count. */
  async untilLed(before?: PatroniNode): Promise<PatroniNode> {
    const others = this.nodes.filter((node) => node !== before);
    return until('a leader', async () => {
      const areLeaders = await Promise.all(others.map((node) => node.isLeader()));
      return others[areLeaders.indexOf(true)];
    });
  }

  /** The standby that commits wait for. */
  async standby(): Promise<PatroniNode> {
    const leader = await this.untilLed();
    return until('a synchronous standby', async () => {
      const [row] = await executeAt<{ name: string }>(
        leader.url('postgres'),
        "select application_name as name from pg_stat_replication where sync_state = 'sync'",
      ).catch(() => []);
      return this.nodes.find(({ name }) => name === row?.name);
    });
  }

  /** Waits until commits wait for the standby. */
  async untilCommitsWait(): Promise<void> {
    const leader = await this.untilLed();
    await this.#untilTrue(leader, "select 1 from pg_stat_activity where wait_event = 'SyncRep'");
  }

  /** Waits until all nodes follow a leader, and Patroni lets one of them take over. */
  async untilWhole(): Promise<void> {
    const leader = await this.untilLed();
    await this.#untilTrue(
      leader,
      `select 1 from pg_stat_replication where state = 'streaming'
       having count(*) = ${NODES - 1} and count(*) filter (where sync_state = 'sync') = 1`,
    );
    await until('a node that may take over', async () => {
      const others = this.nodes.filter((node) => node !== leader);
      const mayTakeOver = await Promise.all(others.map((node) => node.ask('OPTIONS', '/sync')));
      return mayTakeOver.includes(200) || undefined;
    });
  }

  /** Switches over, like an operator. */
  async switchOver(): Promise<void> {
    const leader = await this.untilLed();
    // Refused until the leader knows that another node may take over.
    await until('a switchover', async () => {
      const status = await leader.ask('POST', '/switchover', { leader: leader.name });
      return status === 200 || undefined;
    });
    await this.untilLed(leader);
  }

  async stop(): Promise<void> {
    await killAll(ofFolder(this.#folder));
    await rm(this.#folder, { recursive: true, force: true });
  }

  async #untilTrue(node: PatroniNode, sql: string): Promise<void> {
    await until(sql, async () => {
      const rows = await executeAt(node.url('postgres'), sql).catch(() => []);
      return rows.length > 0 || undefined;
    });
  }

  async #startEtcd(): Promise<void> {
    const clients = `http://127.0.0.1:${this.#ports.etcd}`;
    const peers = `http://127.0.0.1:${this.#ports.peers}`;
    this.#etcd = spawn(
      'etcd',
      [
        `--data-dir=${path.join(this.#folder, 'etcd')}`,
        '--enable-v2=true',
        `--listen-client-urls=${clients}`,
        `--advertise-client-urls=${clients}`,
        `--listen-peer-urls=${peers}`,
        `--initial-advertise-peer-urls=${peers}`,
        `--initial-cluster=default=${peers}`,
      ],
      { stdio: 'ignore', ...accountOf(ACCOUNT) },
    );
    await untilListens('etcd', this.#etcd, this.#ports.etcd);
  }

  async #startHaproxy(): Promise<void> {
    const file = path.join(this.#folder, 'haproxy.cfg');
    const servers = this.nodes.map(
      ({ name, ports: { sql, rest } }) => `  server ${name} 127.0.0.1:${sql} check port ${rest}\n`,
    );
    await writeFile(
      file,
      `defaults
  mode tcp
  maxconn ${MAX_CONNECTIONS}
  timeout connect 1s
  timeout check 1s
  timeout client 30m
  timeout server 30m
listen primary
  bind 127.0.0.1:${this.#ports.haproxy}
  option httpchk OPTIONS /primary
  http-check expect status 200
  default-server inter 1s fall 2 rise 2 on-marked-down shutdown-sessions
${servers.join('')}frontend health
  mode http
  bind 127.0.0.1:${this.#ports.health}
  monitor-uri /
  acl leads nbsrv(primary) eq 1
  monitor fail unless leads
`,
    );
    this.#haproxy = spawn('haproxy', ['-db', '-f', file], { stdio: 'ignore', ...accountOf(ACCOUNT) });
    await untilListens('HAProxy', this.#haproxy, this.#ports.haproxy);
    // At first HAProxy considers all servers primaries.
    await until('a server of HAProxy', async () => {
      const { ok } = await fetch(`http://127.0.0.1:${this.#ports.health}/`);
      return ok || undefined;
    });
  }
}

async function untilListens(name: string, server: ChildProcess, port: number): Promise<void> {
  await until(`${name} on port ${port}`, async () => {
    if (server.exitCode !== null) throw new Error(`${name} has ended`);
    return (await listens(port)) || undefined;
  });
}
