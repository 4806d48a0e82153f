import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

/** A fault that waits for a message of a client. */
interface Fault {
  text: RegExp;
  /** Does something else than to forward the message. */
  meet(client: Socket, server: Socket, message: Buffer): void;
}

/** Enough for a connection to be set up, and for some appends. */
const STORM_MESSAGES = 40;

/** The ways in which the connections of a storm end, by turns. */
const STORM_ENDS = ['at the greeting', 'at the login', 'cut', 'frozen', 'answer lost'] as const;

/** Stands between a program and its database server, and does to the connections what networks and servers do. */
export class Proxy {
  readonly #server: Server;
  #target: URL;
  readonly #clients = new Map<Socket, Socket>();
  readonly #frozen = new WeakSet<Socket>();
  #faults: Fault[] = [];
  #mode: 'open' | 'refusing' | 'silent' | 'storm' = 'open';
  /** How many connections have been asked for. */
  attempts = 0;
  /** What becomes of the texts that the server sends. */
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

  /** Nothing passes any more on the connections that there are, and nothing closes them. New ones work. */
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

  /** Freezes all connections, and accepts new ones without a word. */
  fallSilent(): void {
    this.#mode = 'silent';
    this.freeze();
  }

  /**
   * Each connection ends: after the server's greeting, after the login, or after some messages, of which the last one does
   * not reach the server, or is answered and its answer lost, or from which on nothing passes and nobody says so.
   */
  storm(): void {
    this.#mode = 'storm';
    this.cut();
  }

  open(): void {
    this.#mode = 'open';
  }

  /** Ends all connections, and leads new ones to another server, as HAProxy with `on-marked-down shutdown-sessions`. */
  switchTo(url: string): void {
    this.#target = new URL(url);
    this.cut();
  }

  /**
   * The next message with this text reaches the server, and its answer is lost with the connection.
   *
   * @param meanwhile runs after the server's answer and before the client learns of the loss.
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

  /** The connections freeze with the next message that has this text, before the server gets it. */
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
      const fault = this.#faults.find(({ text }) => text.test(message.toString('latin1')));
      if (!fault) {
        server.write(message);
        return;
      }
      this.#faults = this.#faults.filter((other) => other !== fault);
      fault.meet(client, server, message);
    });
    server.on('data', (message) => {
      // A packet may end within a character.
      const sent = this.rewrite ? Buffer.from(this.rewrite(message.toString('latin1')), 'latin1') : message;
      if (!this.#frozen.has(client)) client.write(sent);
    });
  }
}
