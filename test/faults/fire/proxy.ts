import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

/** A fault that happens at a message of a client. */
interface Fault {
  text: RegExp;
  /** Called instead of forwarding the message. */
  meet(client: Socket, server: Socket, message: Buffer): void;
}

/** Enough to set up a connection and make some appends. */
const STORM_MESSAGES = 40;

/** How the connections of a storm end, in turn. */
const STORM_ENDS = ['at the greeting', 'at the login', 'cut', 'frozen', 'answer lost'] as const;

/** The commands of MySQL and MariaDB that prepare a statement and run it. */
const PREPARE = 0x16;
const EXECUTE = 0x17;

/** The texts of a connection's messages. MySQL and MariaDB get that of a prepared statement once, and then only its number. */
class Texts {
  readonly #isMysql: boolean;
  readonly #prepared = new Map<number, string>();
  #preparing: string | undefined;

  constructor({ protocol }: URL) {
    this.#isMysql = protocol === 'mysql:' || protocol === 'mariadb:';
  }

  /** A message that only prepares a statement has none. */
  of(message: Buffer): string {
    const text = message.toString('latin1');
    if (!this.#isMysql || message.length < 9) return text;
    if (message[4] === EXECUTE) return `${text}${this.#prepared.get(message.readUInt32LE(5)) ?? ''}`;
    if (message[4] !== PREPARE) return text;
    this.#preparing = text;
    return '\0';
  }

  answered(answer: Buffer): void {
    if (this.#preparing !== undefined && answer[4] === 0) this.#prepared.set(answer.readUInt32LE(5), this.#preparing);
    this.#preparing = undefined;
  }
}

/** A proxy between a program and its database server that breaks connections as networks and servers do. */
export class Proxy {
  readonly #server: Server;
  #target: URL;
  readonly #clients = new Map<Socket, Socket>();
  readonly #frozen = new WeakSet<Socket>();
  #faults: Fault[] = [];
  #mode: 'open' | 'refusing' | 'silent' | 'storm' = 'open';
  /** How many connections clients have tried to open. */
  attempts = 0;
  /** Changes the texts that the server sends. */
  rewrite?: (answer: string) => string;

  private constructor(target: URL) {
    this.#target = target;
    this.#server = createServer((client) => this.#accept(client));
  }

  static async before(url: string): Promise<Proxy> {
    const proxy = new Proxy(new URL(url));
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  /** The database's URL through the proxy. */
  get url(): string {
    const url = new URL(this.#target);
    url.hostname = '127.0.0.1';
    url.port = String((this.#server.address() as AddressInfo).port);
    return url.href;
  }

  /** Freezes all connections: they stay open, and nothing passes. New ones work. */
  freeze(): void {
    for (const client of this.#clients.keys()) this.#frozen.add(client);
  }

  /** Ends all connections. */
  cut(): void {
    for (const client of this.#clients.keys()) client.destroy();
  }

  /** Ends all connections, and each new one at once. */
  refuse(): void {
    this.#mode = 'refusing';
    this.cut();
  }

  /** Freezes all connections, and accepts new ones without answering. */
  fallSilent(): void {
    this.#mode = 'silent';
    this.freeze();
  }

  /**
   * Ends each connection: after the server's greeting, after the login, or after some messages. Of these, the last does not
   * reach the server, or its answer is lost, or the connection freezes.
   */
  storm(): void {
    this.#mode = 'storm';
    this.cut();
  }

  open(): void {
    this.#mode = 'open';
  }

  /** Ends all connections, and connects new ones to another server, like HAProxy with `on-marked-down shutdown-sessions`. */
  switchTo(url: string): void {
    this.#target = new URL(url);
    this.cut();
  }

  /**
   * The next message with this text reaches the server, and its answer is lost with the connection.
   *
   * @param meanwhile runs after the server's answer, before the client notices the loss.
   */
  loseAnswer(text: RegExp, meanwhile: () => Promise<unknown> = () => Promise.resolve()): Promise<void> {
    return this.#insteadOfAnswer(text, meanwhile, (client) => client.destroy());
  }

  /** The next message with this text does not reach the server; the client gets this answer. */
  answer(text: RegExp, answer: (message: Buffer) => Buffer): Promise<void> {
    return new Promise((resolve) => {
      this.#faults.push({
        text,
        meet: (client, _server, message) => {
          client.write(answer(message));
          resolve();
        },
      });
    });
  }

  /** The next message with this text reaches the server; the client gets this answer instead of the server's. */
  misreport(text: RegExp, answer: Buffer, meanwhile: () => Promise<unknown>): Promise<void> {
    return this.#insteadOfAnswer(text, meanwhile, (client) => client.write(answer));
  }

  /** The next message with this text reaches the server; its answer does not reach the client. */
  #insteadOfAnswer(text: RegExp, meanwhile: () => Promise<unknown>, act: (client: Socket) => unknown): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#faults.push({
        text,
        meet: (client, server, message) => {
          this.#frozen.add(client);
          server.once('data', () => {
            meanwhile()
              .then(() => {
                act(client);
                resolve();
              })
              .catch(reject);
          });
          server.write(message);
        },
      });
    });
  }

  /** Freezes the connections at the next message with this text, before the server gets it. */
  freezeAt(text: RegExp): Promise<void> {
    return new Promise((resolve) => {
      this.#faults.push({
        text,
        meet: (client) => {
          this.#frozen.add(client);
          resolve();
        },
      });
    });
  }

  async close(): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #accept(client: Socket): void {
    this.attempts++;
    client.on('error', () => undefined);
    if (this.#mode === 'refusing') {
      client.destroy();
      return;
    }
    const server = connect(Number(this.#target.port), this.#target.hostname);
    this.#clients.set(client, server);
    server.on('error', () => client.destroy());
    client.on('close', () => {
      this.#clients.delete(client);
      server.destroy();
    });
    server.on('close', () => {
      if (!this.#frozen.has(client)) client.destroy();
    });
    if (this.#mode === 'silent') this.#frozen.add(client);
    const end = this.#mode === 'storm' ? STORM_ENDS[this.attempts % STORM_ENDS.length] : undefined;
    if (end === 'at the greeting') server.once('data', () => setImmediate(() => client.destroy()));
    let messages = 0;
    const texts = new Texts(this.#target);
    client.on('data', (message) => {
      if (this.#frozen.has(client)) return;
      messages++;
      if (end && messages === (end === 'at the login' ? 2 : STORM_MESSAGES)) {
        if (end === 'answer lost') {
          server.once('data', () => client.destroy());
          server.write(message);
        } else if (end !== 'frozen') client.destroy();
        this.#frozen.add(client);
        return;
      }
      const said = texts.of(message);
      const fault = this.#faults.find(({ text }) => text.test(said));
      if (!fault) {
        server.write(message);
        return;
      }
      this.#faults = this.#faults.filter((other) => other !== fault);
      fault.meet(client, server, message);
    });
    server.on('data', (message) => {
      texts.answered(message);
      // Latin-1 keeps all bytes: a packet may end within a character.
      const sent = this.rewrite ? Buffer.from(this.rewrite(message.toString('latin1')), 'latin1') : message;
      if (!this.#frozen.has(client)) client.write(sent);
    });
  }
}
