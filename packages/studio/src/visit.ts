import { textOrJson } from './operations/words.js';
import { InvalidArgumentError, type SessionKey } from '../../../src/index.js';
import { decode, isRecord } from '../../../src/model/json.js';
import { checkKeys } from '../../../src/model/keys.js';
import { MAX_SEQ } from '../../../src/model/seq-ranges.js';
import { Refusal, formToken, type StudioScope } from './guard.js';
import { fieldValue, html, type Html } from './html.js';
import { Links } from './links.js';
import type { LogReaders, Prices } from './options.js';
import type { Reading } from './reading.js';

/** A request, and what its sender may see. */
export class Visit {
  readonly params: URLSearchParams;
  readonly links: Links;
  /** Whether Markdown is shown as text. */
  readonly isRaw: boolean;

  constructor(
    readonly request: Request,
    /** Relative to `basePath`. */
    readonly path: string,
    readonly scope: StudioScope,
    links: Links,
    readonly reading: Reading,
    readonly readers: () => LogReaders | Promise<LogReaders>,
    /** The cookie with the token of forms; undefined if nothing may be changed. */
    readonly cookie: string | undefined,
    readonly prices: Prices | undefined,
  ) {
    this.params = paramsOf(request);
    this.isRaw = this.params.get('raw') === '1';
    this.links = this.isRaw ? new Links(links.base, { raw: 1 }) : links;
  }

  get mayChange(): boolean {
    return this.cookie !== undefined;
  }

  /** The hidden field that every form with a change needs. */
  get tokenField(): Html {
    return html`<input type="hidden" name="token" value="${formToken(this.cookie ?? '')}" />`;
  }

  /** @throws Refusal of 404 for an app that the visitor may not see. */
  get appName(): string {
    const appName = this.#name('app');
    checkKeys({ appName });
    if (this.scope.appName !== undefined && this.scope.appName !== appName) throw notFound();
    return appName;
  }

  /** The requested app, or the only visible one; undefined for all. */
  get oneApp(): string | undefined {
    return this.params.has('app') ? this.appName : this.scope.appName;
  }

  /** The user whose sessions are listed: the requested one, or the only visible one. */
  get userId(): string | undefined {
    const { scope } = this;
    const userId = this.params.get('user') || scope.userId;
    if (userId !== undefined) checkKeys({ userId });
    if (scope.userId !== undefined && scope.userId !== userId) throw notFound();
    return userId;
  }

  /** @throws Refusal of 404 for a session that the visitor may not see, as if it did not exist. */
  get session(): SessionKey {
    const { appName } = this;
    const key = { appName, userId: this.#name('user'), sessionId: this.#name('session') };
    checkKeys(key);
    if (this.scope.userId !== undefined && this.scope.userId !== key.userId) throw notFound();
    return key;
  }

  /** An event's number in the query. @throws InvalidArgumentError if it is not one. */
  number(name: string): number | undefined {
    const text = this.params.get(name);
    return text === null || text === '' ? undefined : eventNumber(name, text);
  }

  /** @throws Refusal of 403 unless the visitor may see everything. */
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

/** @returns the number of an event that a visitor has given. @throws InvalidArgumentError if it is not one. */
export function eventNumber(name: string, text: string): number {
  if (!/^\d{1,10}$/.test(text) || Number(text) > MAX_SEQ)
    throw new InvalidArgumentError(`${name} must be a whole number, ${MAX_SEQ} at most.`);
  return Number(text);
}

/** @throws InvalidArgumentError for NUL, which PostgreSQL refuses in a text. */
function paramsOf({ url }: Request): URLSearchParams {
  const params = new URL(url).searchParams;
  const names = decode(params.get(NAMES) ?? '')?.value;
  if (isRecord(names)) for (const [name, value] of Object.entries(names)) params.set(name, textOrJson(value));
  // After `names` has been decoded: as JSON it may contain an escaped NUL.
  if ([...params].flat().some((text) => text.includes('\0')))
    throw new InvalidArgumentError('The address of a page may not hold NUL.');
  return params;
}

/** The parameter with the names and ids of a form, as JSON: browsers change line breaks in fields, but JSON escapes them. */
export const NAMES = 'names';

/** A hidden field with the names and ids of a form that is sent with GET. */
export const namesField = (names: Readonly<Record<string, string>>): Html =>
  html`<input type="hidden" name="${NAMES}" value="${fieldValue(JSON.stringify(names))}" />`;

/** One answer for a session that does not exist and for one that the visitor may not see: nobody learns which ids exist. */
export const notFound = () => new Refusal(404, 'There is no such session. It was never created, or it was deleted.');
