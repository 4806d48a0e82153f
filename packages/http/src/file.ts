/** Images that a browser can show without executing anything. Not SVG, which may have scripts. */
export const IMAGES: readonly unknown[] = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];

/** The headers for a file from somebody else. Images can be displayed; everything else is a download. */
export function fileHeaders(name: string, type: string | undefined): Record<string, string> {
  const isImage = type !== undefined && IMAGES.includes(type);
  return {
    'content-type': isImage ? type : 'application/octet-stream',
    'content-disposition': `${isImage ? 'inline' : 'attachment'}; ${namesOf(name)}`,
    // If it is opened as a page of its own, it must not load or execute anything.
    'content-security-policy': "default-src 'none'; sandbox",
    'cross-origin-resource-policy': 'same-origin',
    'x-content-type-options': 'nosniff',
  };
}

/** A name without folders, and without characters that have a meaning in headers or file systems. */
function namesOf(given: string): string {
  const [last = ''] = given.split(/[/\\]/).slice(-1);
  const short = last.slice(0, 100).replace(/\p{Surrogate}/gu, '_');
  const ascii = short.replace(/[^\w.-]+/g, '_').replace(/^[._]+/, '') || 'file';
  if (!/[^\0-\x7f]/.test(short)) return `filename="${ascii}"`;
  const encoded = encodeURIComponent(short).replace(/['()*]/g, (mark) => `%${mark.charCodeAt(0).toString(16)}`);
  return `filename="${ascii}"; filename*=UTF-8''${encoded}`;
}
