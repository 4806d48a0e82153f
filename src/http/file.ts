/** Images that a browser shows without running anything. SVG is none: it may have scripts. */
export const IMAGES: readonly unknown[] = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];

/** The headers of a file that somebody else has made: an image is shown, and everything else is saved. */
export function fileHeaders(name: string, type: string | undefined): Record<string, string> {
  const isImage = type !== undefined && IMAGES.includes(type);
  return {
    'content-type': isImage ? type : 'application/octet-stream',
    'content-disposition': `${isImage ? 'inline' : 'attachment'}; ${namesOf(name)}`,
    // Opened as a page of its own it may load and run nothing.
    'content-security-policy': "default-src 'none'; sandbox",
    'cross-origin-resource-policy': 'same-origin',
    'x-content-type-options': 'nosniff',
  };
}

/** A name without folders, and nothing that a header or a file system would take for something else. */
function namesOf(given: string): string {
  const [last = ''] = given.split(/[/\\]/).slice(-1);
  const short = last.slice(0, 100).replace(/\p{Surrogate}/gu, '_');
  const ascii = short.replace(/[^\w.-]+/g, '_').replace(/^[._]+/, '') || 'file';
  if (!/[^\0-\x7f]/.test(short)) return `filename="${ascii}"`;
  const encoded = encodeURIComponent(short).replace(/['()*]/g, (mark) => `%${mark.charCodeAt(0).toString(16)}`);
  return `filename="${ascii}"; filename*=UTF-8''${encoded}`;
}
