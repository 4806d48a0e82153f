import type { SessionKey } from '../../../src/index.js';

/** The parameters of a link; those that are `undefined` are left out. */
type Query = Readonly<Record<string, string | number | undefined>>;

/**
 * The addresses of the pages. Names and ids stand in the query, since browsers and proxies resolve `..` in a path and decode
 * its slashes.
 */
export class Links {
  /**
   * @param base the path at which the studio is mounted; empty at the root.
   * @param kept parameters that every link to a session has.
   */
  constructor(
    readonly base: string,
    readonly kept: Query = {},
  ) {}

  /** The list of the apps, on the first page. */
  get apps(): string {
    return `${this.to('/')}#apps`;
  }

  to(path: string, query: Query = {}): string {
    const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== '');
    const text = new URLSearchParams(given.map(([name, value]): [string, string] => [name, String(value)])).toString();
    return this.base + path + (text && `?${text}`);
  }

  sessions(appName: string, userId?: string): string {
    return this.to('/sessions', { app: appName, user: userId });
  }

  ofSession(path: string, { appName, userId, sessionId }: SessionKey, query: Query = {}): string {
    return this.to(path, { app: appName, user: userId, session: sessionId, ...this.kept, ...query });
  }
}
