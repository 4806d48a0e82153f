import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { setTimeout } from 'node:timers';

/** A network between a program and its server: a proxy that delays what passes, and counts how often the program waits. */
export class Distance {
  /** How often a client has sent something after an answer, as it does only if it has waited for that. */
  trips = 0;
  readonly #server: Server;
  readonly #target: URL;
  readonly #delayMs: number;
  readonly #clients = new Set<Socket>();

  private constructor(target: URL, delayMs: number) {
    this.#target = target;
    this.#delayMs = delayMs;
    this.#server = createServer({ noDelay: true }, (client) => this.#accept(client));
  }

  /** @param rttMs how long a question and its answer are under way, in ms. */
  static async to(url: string, rttMs = 0): Promise<Distance> {
    const distance = new Distance(new URL(url), rttMs / 2);
    distance.#server.listen(0, '127.0.0.1');
    await once(distance.#server, 'listening');
    return distance;
  }

  /** The database's URL through the proxy. */
  get url(): string {
    const { port } = this.#server.address() as AddressInfo;
    return Object.assign(new URL(this.#target), { hostname: '127.0.0.1', port: String(port) }).href;
  }

  async close(): Promise<void> {
    for (const client of this.#clients) client.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #accept(client: Socket): void {
    const server = connect({ port: Number(this.#target.port), host: this.#target.hostname, noDelay: true });
    this.#clients.add(client);
    let isAnswered = true;
    client.on('data', (message) => {
      if (isAnswered) this.trips++;
      isAnswered = false;
      this.#pass(message, server);
    });
    server.on('data', (message) => {
      this.#pass(message, client, () => (isAnswered = true));
    });
    for (const [one, other] of [
      [client, server],
      [server, client],
    ] as const) {
      one.on('error', () => other.destroy());
      one.on('close', () => other.destroy());
    }
    client.on('close', () => this.#clients.delete(client));
  }

  #pass(message: Buffer, to: Socket, passed = () => {}): void {
    const pass = () => {
      passed();
      if (!to.destroyed) to.write(message);
    };
    // Timers of one length fire in the order in which they were set.
    if (this.#delayMs > 0) setTimeout(pass, this.#delayMs);
    else pass();
  }
}
