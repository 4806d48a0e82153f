import type { SessionKey } from '../model/keys.js';

/** What a link has in its query; `undefined` is left out. */
type Query = Readonly<Record<string, string | number | undefined>>;

/**
 * The addresses of the pages. Names and ids are in the query: in a path, browsers and proxies would resolve `..` and decode
 * slashes.
 */
export class Links {
  /**
   * @param base the path that the studio is mounted at; empty at the root.
   * @param kept what all links to pages about a session have in their query.
   */
  constructor(
    readonly base: string,
    readonly kept: Query = {},
  ) {}

  to(path: string, query: Query = {}): string {
    const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== '');
    const text = new URLSearchParams(given.map(([name, value]): [string, string] => [name, String(value)])).toString();
    return this.base + path + (text && `?${text}`);
  }

  sessions(appName: string, userId?: string): string {
    return this.to('/sessions', { app: appName, user: userId });
  }

  /** A page about one session. */
  ofSession(path: string, { appName, userId, sessionId }: SessionKey, query: Query = {}): string {
    return this.to(path, { app: appName, user: userId, session: sessionId, ...this.kept, ...query });
  }
}
