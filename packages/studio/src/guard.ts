import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { anything, condition, object } from '../../../src/model/arguments.js';
import { checkKeys } from '../../../src/model/keys.js';

/** Whose sessions a visitor may see; all if both are left out. */
export interface StudioScope {
  appName?: string;
  userId?: string;
}

/** Refuses a request. The visitor sees the message. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** For every response: scripts, styles and images come only from the studio, and never stand in the page itself. */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  'cache-control': 'no-store',
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  // With `no-referrer`, browsers send no origin with a form, and `checkHost` needs it.
  'referrer-policy': 'same-origin',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
};

/** Sends the browser to another page. */
export const seeOther = (location: string, headers: Readonly<Record<string, string>> = {}): Response =>
  new Response(null, { status: 303, headers: { ...SECURITY_HEADERS, ...headers, location } });

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]'];

/**
 * Prevents DNS rebinding: another site can let its own name resolve to this machine, and its pages could then read the studio.
 * Such requests have that name in `Host`.
 *
 * @param hosts the allowed names; undefined for any.
 * @throws Refusal of 400 for no valid `Host`, of 403 for another name or a form of another site.
 */
export function checkHost(request: Request, hosts: readonly string[] | undefined): void {
  const host = hostOf(request);
  if (!URL.canParse(`http://${host}`)) throw new Refusal(400, 'The request has no valid Host.');
  const name = new URL(`http://${host}`).hostname;
  if (hosts && !hosts.includes(name) && !hosts.includes(host))
    throw new Refusal(
      403,
      'This host name is not answered. Open the studio by its own address, or add the name to hosts.',
    );
  const origin = request.headers.get('origin');
  if (origin !== null && (!URL.canParse(origin) || new URL(origin).host !== host))
    throw new Refusal(403, 'The request comes from another site.');
}

/** The allowed names: without `authorize` only those of this machine. */
export const hostsOf = (hosts: readonly string[] | undefined, isAuthorized: boolean) =>
  hosts ?? (isAuthorized ? undefined : LOOPBACK);

const hostOf = (request: Request) => request.headers.get('host') ?? new URL(request.url).host;

const checkNames = object<StudioScope>({ appName: condition(anything), userId: condition(anything) });

/**
 * Checks what `authorize` returned: a misspelt property, or one that is `undefined`, would otherwise show everything.
 *
 * @throws Refusal of 403 for `false`; TypeError for anything else that is not a scope.
 */
export function checkScope(given: StudioScope | false): StudioScope {
  if (given === false) throw new Refusal(403, 'You may not see this.');
  try {
    const scope = checkNames(given, 'The scope');
    checkKeys(scope);
    return scope;
  } catch (error) {
    // Not a Refusal: the mistake is the host's, and belongs into its log.
    throw new TypeError('authorize must return false, or an object with appName and userId, one of them, or neither.', {
      cause: error,
    });
  }
}

const COOKIE = 'adk_studio';

/** The cookie with the token of forms. Browsers do not send it with requests of other sites. */
export function formCookie(request: Request): string | undefined {
  return cookiesOf(request, COOKIE).find((value) => /^[\w-]{43}$/.test(value));
}

/** @returns the values of all cookies of this name. */
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

/** Compares secrets in constant time. */
export function isSame(one: string, other: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(one), digest(other));
}
