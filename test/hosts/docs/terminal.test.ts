import { execFile } from 'node:child_process';
import { readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { installPackage } from '../schema/host-folder.js';
import { blocksOf, pages, programsOf } from './blocks.js';
import { drawTerminal } from './terminal.js';

const run = promisify(execFile);
const PICTURE = 'docs/first.svg';

/** `ADK_TEST_FULL=1 ADK_TEST_UPDATE=1 npx jest test/hosts/docs/terminal` records them again. */
const guides = () => pages().filter((page) => page.startsWith('docs/guides/'));

let root: string;
beforeAll(async () => {
  root = await installPackage();
});
afterAll(() => rm(root, { recursive: true }));

test('the terminal in the README shows what its program prints when it is run twice', async () => {
  const [block] = blocksOf('README.md');
  await writeFile(path.join(root, 'first.mjs'), block!.code);
  const lines: string[] = [];
  for (let i = 0; i < 2; i++) {
    const { stdout } = await run(process.execPath, ['first.mjs'], { cwd: root });
    lines.push('$ node first.mjs', ...stdout.trimEnd().split('\n'));
  }

  const picture = drawTerminal('node first.mjs, twice: the second run has the conversation of the first one', lines);
  if (process.env['ADK_TEST_UPDATE']) await writeFile(PICTURE, picture);
  expect(await readFile(PICTURE, 'utf8')).toBe(picture);
});

test.each(guides())('%s is a program that runs after the first one', async (page) => {
  const [program] = programsOf(page);
  const [, file = ''] = /`(\w+\.mjs)`/.exec(await readFile(page, 'utf8')) ?? [];
  await writeFile(path.join(root, file), program!.code);
  await run(process.execPath, [file], { cwd: root });
});
