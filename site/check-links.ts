// Follows every link of the built site to its page and its anchor.
import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { brokenLinks } from './links.js';

const BUILT = path.join(import.meta.dirname, '.vitepress/dist');
const files = readdirSync(BUILT, { recursive: true, encoding: 'utf8' }).map((file) => file.replaceAll(path.sep, '/'));
const pages = new Map(
  files
    // Its relative links depend on the missing page.
    .filter((file) => file.endsWith('.html') && file !== '404.html')
    .map((file) => [file, readFileSync(path.join(BUILT, file), 'utf8')]),
);
const broken = brokenLinks(pages, new Set(files), process.env['SITE_BASE'] ?? '/');
if (broken.length > 0) throw new Error(`Links that lead nowhere:\n${broken.join('\n')}`);
console.log(`The links of ${pages.size} pages lead somewhere.`);
