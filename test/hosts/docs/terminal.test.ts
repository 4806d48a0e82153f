import { execFile } from 'node:child_process';
import { readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { installPackage } from '../schema/host-folder.js';
import { blocksOf } from './blocks.js';
import { drawTerminal } from './terminal.js';

const run = promisify(execFile);
const PICTURE = 'docs/first.svg';

/** `ADK_TEST_FULL=1 ADK_TEST_UPDATE=1 npx jest test/hosts/docs/terminal` records it anew. */
test('the terminal in the README shows what its program prints when it is run twice', async () => {
  const root = await installPackage();
  const [block] = blocksOf('README.md');
  await writeFile(path.join(root, 'first.mjs'), block!.code);
  const lines: string[] = [];
  for (let i = 0; i < 2; i++) {
    const { stdout } = await run(process.execPath, ['first.mjs'], { cwd: root });
    lines.push('$ node first.mjs', ...stdout.trimEnd().split('\n'));
  }
  await rm(root, { recursive: true });

  const picture = drawTerminal('node first.mjs, twice: the second run has the conversation of the first one', lines);
  if (process.env['ADK_TEST_UPDATE']) await writeFile(PICTURE, picture);
  expect(await readFile(PICTURE, 'utf8')).toBe(picture);
});
