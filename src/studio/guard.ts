import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { anything, condition, object } from '../model/arguments.js';
import { checkKeys } from '../model/keys.js';

/** Whose sessions a visitor may see; all if both are left out. */
export interface StudioScope {
  appName?: string;
  userId?: string;
}

/** A request that gets no page. Its message is shown. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** On every response. No script, style or image comes from elsewhere, and none is written into a page. */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  'cache-control': 'no-store',
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  // Not `no-referrer`, with which browsers leave the origin out of the forms that are checked by it.
  'referrer-policy': 'same-origin',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
};

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]'];

/**
 * A page of another site can have its name lead to this machine, and then read what it likes (DNS rebinding): it is found
 * out by the name in `Host`.
 *
 * @param hosts the names that are answered; undefined for any.
 * @throws Refusal of 403.
 */
export function checkHost(request: Request, hosts: readonly string[] | undefined): void {
  const host = hostOf(request);
  let name: string;
  try {
    name = new URL(`http://${host}`).hostname;
  } catch {
    throw new Refusal(400, 'The request has no valid Host.');
  }
  if (hosts && !hosts.includes(name) && !hosts.includes(host))
    throw new Refusal(
      403,
      'This host name is not answered. Open the studio by its own address, or add the name to hosts.',
    );
  const origin = request.headers.get('origin');
  if (origin !== null && originHost(origin) !== host) throw new Refusal(403, 'The request comes from another site.');
}

/** The names that a studio without `authorize` answers to. */
export const hostsOf = (hosts: readonly string[] | undefined, isAuthorized: boolean) =>
  hosts ?? (isAuthorized ? undefined : LOOPBACK);

const hostOf = (request: Request) => request.headers.get('host') ?? new URL(request.url).host;

function originHost(origin: string): string | undefined {
  try {
    return new URL(origin).host;
  } catch {
    return undefined;
  }
}

const checkNames = object<StudioScope>({ appName: condition(anything), userId: condition(anything) });

/**
 * Checks what `authorize` has returned. A misspelt name, one without a value, or an object that is no scope would show
 * everything.
 *
 * @throws TypeError if it is none of what it may return; Refusal of 403 if it is `false`.
 */
export function checkScope(given: StudioScope | false): StudioScope {
  if (given === false) throw new Refusal(403, 'You may not see this.');
  try {
    const scope = checkNames(given, 'The scope');
    checkKeys(scope);
    return scope;
  } catch (error) {
    // It is the host's mistake, and not the visitor's.
    throw new TypeError('authorize must return false, or an object with appName and userId, one of them, or neither.', {
      cause: error,
    });
  }
}

const COOKIE = 'adk_studio';

/** The cookie that the token of a form belongs to: it goes with no request that another site makes. */
export function formCookie(request: Request): string | undefined {
  return cookiesOf(request, COOKIE).find((value) => /^[\w-]{43}$/.test(value));
}

/** @returns the values of the cookies of a name. */
export const cookiesOf = (request: Request, name: string): string[] =>
  (request.headers.get('cookie') ?? '').split(';').flatMap((cookie) => {
    const text = cookie.trim();
    return text.startsWith(`${name}=`) ? [text.slice(name.length + 1)] : [];
  });

export const newFormCookie = () => randomBytes(32).toString('base64url');

export const setFormCookie = (value: string, path: string) =>
  `${COOKIE}=${value}; Path=${path || '/'}; HttpOnly; SameSite=Strict`;

export const formToken = (cookie: string) => createHash('sha256').update(`form ${cookie}`).digest('base64url');

/** @throws Refusal of 403 unless a form of this studio has sent the request. */
export function checkForm(request: Request, form: URLSearchParams): void {
  const cookie = formCookie(request);
  const isSameOrigin = request.headers.has('origin') || request.headers.get('sec-fetch-site') === 'same-origin';
  if (!isSameOrigin || cookie === undefined || !isSame(form.get('token') ?? '', formToken(cookie)))
    throw new Refusal(
      403,
      'This form was not sent by the studio, or its page is too old. Go back, load the page again, and repeat it.',
    );
}

/** Compares secrets in a time that does not depend on them. */
export function isSame(one: string, other: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(one), digest(other));
}
