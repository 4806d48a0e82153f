import { createHash } from 'node:crypto';
import { SECURITY_HEADERS } from '../guard.js';
import { SCRIPT_TEXT } from './script.js';
import { STYLES_TEXT } from './styles.js';

/** A style sheet or script. Its name is a hash of its text, so browsers may cache it for ever. */
interface Asset {
  path: string;
  type: string;
  text: string;
}

function asset(name: string, type: string, text: string): Asset {
  const hash = createHash('sha256').update(text).digest('base64url').slice(0, 12);
  return { path: `/assets/${name.replace('.', `-${hash}.`)}`, type, text };
}

export const STYLES = asset('studio.css', 'text/css; charset=utf-8', STYLES_TEXT);
export const SCRIPT = asset('studio.js', 'text/javascript; charset=utf-8', SCRIPT_TEXT);

const ICON: Asset = {
  path: '/assets/icon.svg',
  type: 'image/svg+xml',
  text: '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="4" fill="#4f46e5"/><path d="M4 5h8M4 8h5M4 11h7" stroke="#fff" stroke-width="1.5" stroke-linecap="round"/></svg>',
};

/** @returns the style sheet or script at a path, or undefined. */
export function assetAt(path: string): Response | undefined {
  const found = [STYLES, SCRIPT, ICON].find((each) => each.path === path);
  if (!found) return undefined;
  const caching = found === ICON ? 'max-age=86400' : 'max-age=31536000, immutable';
  return new Response(found.text, {
    headers: { ...SECURITY_HEADERS, 'cache-control': `public, ${caching}`, 'content-type': found.type },
  });
}
