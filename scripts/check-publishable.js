// Stops a release if package.json does not name the repository: npm would publish the package without links.
import { readFileSync } from 'node:fs';

const NEEDED = ['repository', 'homepage', 'bugs', 'author'];

/** @type {unknown} */
const manifest = JSON.parse(readFileSync('package.json', 'utf8'));
const fields = typeof manifest === 'object' && manifest !== null ? Object.keys(manifest) : [];
const missing = NEEDED.filter((field) => !fields.includes(field));
if (missing.length > 0) {
  process.stderr.write(`package.json has no ${missing.join(', no ')}: fill them in before you publish.\n`);
  process.exitCode = 1;
}
