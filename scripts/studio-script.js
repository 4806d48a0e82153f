// Compiles the studio's script, which is typed and linted for browsers, to the text that is served. Tests and hosts' bundlers use
// the sources directly, so the text must exist without a build. With --check, only checks whether the text is current.
import { build } from 'esbuild';
import { readFileSync, writeFileSync } from 'node:fs';

const TARGET = 'packages/studio/src/assets/script.ts';

const { outputFiles } = await build({
  entryPoints: ['packages/studio/src/browser/studio.ts'],
  bundle: true,
  minify: true,
  format: 'iife',
  target: ['chrome110', 'firefox115', 'safari16'],
  charset: 'utf8',
  write: false,
});
const script = (outputFiles[0]?.text ?? '').trim();
const text = `/** Made of packages/studio/src/browser/studio.ts by \`npm run studio-script\`. */
// prettier-ignore
export const SCRIPT_TEXT = ${JSON.stringify(script)};
`;

if (!process.argv.includes('--check')) writeFileSync(TARGET, text);
else if (readFileSync(TARGET, 'utf8') !== text) {
  console.error(`${TARGET} is not made of its source: npm run studio-script`);
  process.exitCode = 1;
}
