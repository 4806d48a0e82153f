import { Refusal, SECURITY_HEADERS, checkHost, cookiesOf, isSame, type StudioScope } from './guard.js';

const COOKIE = 'adk_studio_token';

/** Admits visitors who opened a link with the token. From then on, a cookie has the token. */
export class TokenDoor {
  readonly #token: string;

  constructor(token: string) {
    this.#token = token;
  }

  /** The studio's `authorize`. @throws Refusal of 401 without the token. */
  readonly authorize = (request: Request): StudioScope => {
    if (!isSame(cookiesOf(request, COOKIE)[0] ?? '', this.#token))
      throw new Refusal(401, 'Open the link that the command printed: it contains the token.');
    return {};
  };

  /** Answers the link with the token; passes everything else to the studio. */
  guard(fetch: (request: Request) => Promise<Response>): (request: Request) => Promise<Response> {
    return async (request) => {
      const url = new URL(request.url);
      const given = url.searchParams.get('token');
      // A form has its token in its body.
      if (given === null || request.method !== 'GET' || !isSame(given, this.#token)) return fetch(request);
      checkHost(request, undefined);
      url.searchParams.delete('token');
      const cookie = `${COOKIE}=${this.#token}; Path=/; HttpOnly; SameSite=Strict`;
      // A path that begins with two slashes would be the name of another site.
      const location = url.pathname.replace(/^\/+/, '/') + url.search;
      const headers = { ...SECURITY_HEADERS, location, 'set-cookie': cookie };
      return new Response(null, { status: 303, headers });
    };
  }
}
