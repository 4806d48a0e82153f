import type { LogCursor } from '../model/log-history.js';
import { InvalidArgumentError } from '../model/errors.js';
import { decode } from '../model/event-codec.js';
import { checkKeys, type SessionKey } from '../model/keys.js';
import { isRecord } from '../model/objects.js';
import { MAX_SEQ } from '../model/seq-ranges.js';
import { Refusal, formToken, type StudioScope } from './guard.js';
import { fieldValue, html, type Html } from './html.js';
import { Links } from './links.js';
import type { Reading } from './reading.js';

/** Where readers of the event log are, by the names that the host gives them. */
export type LogReaders = Readonly<Record<string, LogCursor | number>>;

/** A request that is answered: who asks for what. */
export class Visit {
  readonly params: URLSearchParams;
  readonly links: Links;
  /** Whether texts in Markdown are shown as they are. */
  readonly isRaw: boolean;

  constructor(
    readonly request: Request,
    /** Without the path that the studio is mounted at. */
    readonly path: string,
    readonly scope: StudioScope,
    links: Links,
    readonly reading: Reading,
    /** Where the host's readers of the event log are. */
    readonly readers: () => LogReaders | Promise<LogReaders>,
    /** Undefined if nothing may be changed. */
    readonly cookie: string | undefined,
  ) {
    this.params = paramsOf(request);
    this.isRaw = this.params.get('raw') === '1';
    this.links = this.isRaw ? new Links(links.base, { raw: 1 }) : links;
  }

  get mayChange(): boolean {
    return this.cookie !== undefined;
  }

  /** A field that each form has which changes something. */
  get tokenField(): Html {
    return html`<input type="hidden" name="token" value="${formToken(this.cookie ?? '')}" />`;
  }

  /** @throws Refusal of 404 for an app of somebody else. */
  get appName(): string {
    const appName = this.#name('app');
    checkKeys({ appName });
    if (this.scope.appName !== undefined && this.scope.appName !== appName) throw notFound();
    return appName;
  }

  /** The user whose sessions are listed: the one asked for, or the only one that may be seen. */
  get userId(): string | undefined {
    const { scope } = this;
    const userId = this.params.get('user') || scope.userId;
    if (userId !== undefined) checkKeys({ userId });
    if (scope.userId !== undefined && scope.userId !== userId) throw notFound();
    return userId;
  }

  /** @throws Refusal of 404 for a session of somebody else, as for one that is not there. */
  get session(): SessionKey {
    const { appName } = this;
    const key = { appName, userId: this.#name('user'), sessionId: this.#name('session') };
    checkKeys(key);
    if (this.scope.userId !== undefined && this.scope.userId !== key.userId) throw notFound();
    return key;
  }

  /** A number of the query. @throws InvalidArgumentError if it is none. */
  number(name: string): number | undefined {
    const text = this.params.get(name);
    return text === null || text === '' ? undefined : eventNumber(name, text);
  }

  /** What the operator of the whole database sees. @throws Refusal of 403 for others. */
  checkUnlimited(): void {
    if (!this.isUnlimited) throw new Refusal(403, 'This page is for those who may see all apps and users.');
  }

  get isUnlimited(): boolean {
    return this.scope.appName === undefined && this.scope.userId === undefined;
  }

  #name(param: string): string {
    const value = this.params.get(param);
    if (value === null) throw new Refusal(404, 'There is no such page.');
    return value;
  }
}

/** The number of an event that a visitor has given. @throws InvalidArgumentError if it is none. */
export function eventNumber(name: string, text: string): number {
  if (!/^\d{1,10}$/.test(text) || Number(text) > MAX_SEQ)
    throw new InvalidArgumentError(`${name} must be a whole number, ${MAX_SEQ} at most.`);
  return Number(text);
}

/** @throws InvalidArgumentError for what PostgreSQL takes for no text. */
function paramsOf({ url }: Request): URLSearchParams {
  const params = new URL(url).searchParams;
  const names = decode(params.get(NAMES) ?? '')?.value;
  if (isRecord(names)) for (const [name, value] of Object.entries(names)) params.set(name, String(value));
  // After the names, in which it can be escaped.
  if ([...params].flat().some((text) => text.includes('\0')))
    throw new InvalidArgumentError('The address of a page may not hold NUL.');
  return params;
}

/** The parameter in which a form has names and ids: browsers change line breaks in fields, but not in JSON. */
const NAMES = 'names';

/** A field for the names and ids that a form with GET sends along. */
export const namesField = (names: Readonly<Record<string, string>>): Html =>
  html`<input type="hidden" name="${NAMES}" value="${fieldValue(JSON.stringify(names))}" />`;

/** The same answer whether it is not there or not to be seen. */
export const notFound = () => new Refusal(404, 'There is no such session. It was never created, or it was deleted.');
