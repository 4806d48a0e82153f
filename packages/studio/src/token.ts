import { Refusal, checkHost, cookiesOf, isSame, seeOther, type StudioScope } from './guard.js';

const COOKIE = 'adk_studio_token';

/** Admits visitors who opened a link with the token. From then on, a cookie has the token. */
export const tokenDoor = (token: string) => ({
  /** The studio's `authorize`. @throws Refusal of 401 without the token. */
  authorize(this: void, request: Request): StudioScope {
    if (!isSame(cookiesOf(request, COOKIE)[0] ?? '', token))
      throw new Refusal(401, 'Open the link that the command printed: it contains the token.');
    return {};
  },

  /** Answers the link with the token; passes everything else to the studio. */
  guard: (fetch: (request: Request) => Promise<Response>) => async (request: Request) => {
    const url = new URL(request.url);
    const given = url.searchParams.get('token');
    // A form has its token in its body.
    if (given === null || request.method !== 'GET' || !isSame(given, token)) return fetch(request);
    checkHost(request, undefined);
    url.searchParams.delete('token');
    const cookie = `${COOKIE}=${token}; Path=/; HttpOnly; SameSite=Strict`;
    // A path that begins with two slashes would be the name of another site.
    const location = url.pathname.replace(/^\/+/, '/') + url.search;
    return seeOther(location, { 'set-cookie': cookie });
  },
});
