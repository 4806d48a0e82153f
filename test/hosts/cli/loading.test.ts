import path from 'node:path';
import { build, type Metafile } from 'esbuild';

/** What a file loads at once, and not when something needs it. */
function loadedBy(entry: string, { inputs }: Metafile): string[] {
  const loaded = new Set([entry]);
  for (const file of loaded)
    for (const { path: name, kind, external } of inputs[file]?.imports ?? [])
      if (kind === 'import-statement' && !name.startsWith('node:')) loaded.add(external ? `package ${name}` : name);
  return [...loaded].map((file) => path.basename(file, '.ts')).sort();
}

test('the command line loads what --version and --help need, and the rest with the command that runs', async () => {
  const entry = 'packages/cli/src/main.ts';
  const { metafile } = await build({
    ...{ entryPoints: [entry], bundle: true, packages: 'external', metafile: true, write: false },
    ...{ platform: 'node', format: 'esm', splitting: true, outdir: 'unused' },
  });
  expect(loadedBy(entry, metafile)).toEqual([
    'main',
    'named-command',
    'package commander',
    'program',
    'values',
    'version',
  ]);
  expect(Object.keys(metafile.inputs).length).toBeGreaterThan(100);
});
