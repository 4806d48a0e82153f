import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { build, type Plugin } from 'esbuild';

/** Beside MikroORM 7 ADK 2.0.0 has a MikroORM 6 of its own, which must stay another one in a bundle, too. */
const mikroOrmOutside: Plugin = {
  name: 'MikroORM stays outside',
  setup({ onResolve }) {
    onResolve({ filter: /^@mikro-orm\// }, ({ path: name, importer }) => {
      const [adk] = /^.*\/node_modules\/@google\/adk\//.exec(importer) ?? [];
      const nested = path.join(adk ?? '', 'node_modules', name, 'index.mjs');
      return { path: adk !== undefined && existsSync(nested) ? nested : name, external: true };
    });
  },
};

/** A script in one file, for other processes: of few files, ADK's among them, one starts in a third of the time that `tsx` takes. */
export class WorkerBundle {
  readonly #script: string;
  /** Inside the repository, since a module finds packages in the folders above it. */
  readonly path = path.resolve(`node_modules/.cache/adk-mikro-orm/worker-${randomBytes(5).toString('hex')}.mjs`);

  /** @param script its path in the repository. */
  constructor(script: string) {
    this.#script = script;
  }

  async build(): Promise<void> {
    await build({
      entryPoints: [path.resolve(this.#script)],
      outfile: this.path,
      bundle: true,
      platform: 'node',
      format: 'esm',
      // A large package with files of its own beside its code.
      external: ['@google/adk-devtools'],
      plugins: [mikroOrmOutside],
      banner: {
        js: "import { createRequire as newRequire } from 'node:module'; const require = newRequire(import.meta.url);",
      },
      logLevel: 'error',
    });
  }

  async remove(): Promise<void> {
    await rm(this.path, { force: true });
  }
}
