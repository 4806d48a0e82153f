import { MikroORM } from '@mikro-orm/core';
import { once } from 'node:events';
import { createServer, request, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { adkEntities, MikroOrmSessionService } from '../../../src/index.js';
import { createStudio, type StudioOptions } from '../../../packages/studio/src/index.js';
import { createMigrated } from '../../support/migrated.js';
import type { DatabaseName } from '../../support/servers.js';

export interface Answer {
  status: number;
  headers: IncomingMessage['headers'];
  body: string;
}

interface RequestOptions {
  method?: string;
  headers?: Record<string, string>;
  form?: Record<string, string>;
}

/** A database with our tables, and servers with studios for it. */
export class Served {
  readonly service: MikroOrmSessionService;
  readonly #close: (() => Promise<unknown>)[] = [];
  readonly #servers: Server[] = [];

  private constructor(
    readonly orm: MikroORM,
    readonly url: string,
  ) {
    this.service = new MikroOrmSessionService(orm.em);
  }

  static async open(name: DatabaseName): Promise<Served> {
    const { options, url, drop } = await createMigrated(name);
    const orm = await MikroORM.init({ ...options, entities: adkEntities() });
    const served = new Served(orm, url);
    served.#close.push(async () => {
      await orm.close(true);
      await drop();
    });
    return served;
  }

  /** Starts a studio. @returns the object that sends requests to it. */
  async studio(options: StudioOptions = {}): Promise<Site> {
    return this.listen(createStudio(this.orm.em, options).listener);
  }

  async listen(listener: RequestListener): Promise<Site> {
    const server = createServer(listener).listen(0, '127.0.0.1');
    await once(server, 'listening');
    this.#servers.push(server);
    this.#close.unshift(async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    });
    return new Site((server.address() as AddressInfo).port);
  }

  /** Drops connections, as a restart does. */
  dropConnections(): void {
    for (const server of this.#servers) server.closeAllConnections();
  }

  async close(): Promise<void> {
    for (const close of this.#close) await close();
  }
}

/** @returns a function that opens a database for one test, which is closed when the test ends, also if it fails. */
export function openerForTests(): (name: DatabaseName) => Promise<Served> {
  const opened: Served[] = [];
  afterEach(async () => {
    for (const served of opened.splice(0)) await served.close();
  });
  return async (name) => {
    const served = await Served.open(name);
    opened.push(served);
    return served;
  };
}

/** Sends requests with any headers. Browsers and `fetch` would not send all of them. */
export class Site {
  readonly origin: string;

  constructor(readonly port: number) {
    this.origin = `http://127.0.0.1:${port}`;
  }

  async open(path: string, { method, headers = {}, form }: RequestOptions = {}): Promise<IncomingMessage> {
    const body = form && new URLSearchParams(form).toString();
    const sent = request({
      port: this.port,
      host: '127.0.0.1',
      path,
      method: method ?? (form ? 'POST' : 'GET'),
      headers: { ...(form && { 'content-type': 'application/x-www-form-urlencoded' }), ...headers },
    });
    sent.end(body);
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    return response;
  }

  /** Loads a page again until everything is counted, as its script does. */
  async get(path: string, options?: RequestOptions): Promise<Answer> {
    const answer = await this.first(path, options);
    return isCounting(answer) ? this.get(path, options) : answer;
  }

  async first(path: string, options?: RequestOptions): Promise<Answer> {
    const response = await this.open(path, options);
    return { status: response.statusCode ?? 0, headers: response.headers, body: await text(response) };
  }
}

export const isCounting = ({ body }: Answer): boolean => body.includes('data-refresh="1"');

/** The text that a person reads on a page. */
export function shown({ body }: Answer): string {
  const main = body.slice(body.indexOf('<main'), body.indexOf('</main>'));
  const plain = main.replace(/<[^>]*>/g, ' ').replace(/\s+/g, ' ');
  return plain
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&');
}

/** The addresses that a page links to and that have this beginning. */
export function linksOf({ body }: Answer, begin: string): string[] {
  const links = [...body.matchAll(/href="([^"]*)"/g)].map(([, href = '']) => href.replaceAll('&amp;', '&'));
  return links.filter((href) => href.startsWith(begin));
}

export const query = (path: string, values: Record<string, string | number>) =>
  `${path}?${new URLSearchParams(Object.entries(values).map(([name, value]): [string, string] => [name, String(value)])).toString()}`;
