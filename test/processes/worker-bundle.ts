import { randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { build } from 'esbuild';

/** A script in one file, for other processes: of few files, ADK's among them, one starts in a third of the time that `tsx` takes. */
export class WorkerBundle {
  /** Inside the repository, since a module finds packages in the folders above it. */
  readonly path = path.resolve(`node_modules/.cache/adk-mikro-orm/worker-${randomBytes(5).toString('hex')}.mjs`);

  /** @param script in this folder. */
  constructor(private readonly script: string) {}

  async build(): Promise<void> {
    await build({
      entryPoints: [path.resolve('test/processes', this.script)],
      outfile: this.path,
      bundle: true,
      platform: 'node',
      format: 'esm',
      external: ['@mikro-orm/*'],
      banner: { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" },
      logLevel: 'error',
    });
  }

  async remove(): Promise<void> {
    await rm(this.path, { force: true });
  }
}
