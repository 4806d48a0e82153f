import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { build, type Plugin } from 'esbuild';

/** Keeps MikroORM outside of bundles: beside MikroORM 7, ADK 2.0.0 has its own MikroORM 6, which must stay separate. */
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

const IN_ONE_FILE = {
  // A large package that loads files beside its code.
  external: ['@google/adk-devtools'],
  plugins: [mikroOrmOutside],
  banner: {
    js: "import { createRequire as newRequire } from 'node:module'; const require = newRequire(import.meta.url);",
  },
};

/** A script in one file, for other processes: with few files to load, they start in a third of the time that `tsx` takes. */
export class WorkerBundle {
  readonly #script: string;
  readonly #format: 'esm' | 'cjs';
  /** Inside the repository, since modules look for packages in the folders above them. */
  readonly path: string;

  /**
   * @param script its path in the repository.
   * @param format `cjs` for a module that is required, and requires packages instead of containing them.
   */
  constructor(script: string, format: 'esm' | 'cjs' = 'esm') {
    this.#script = script;
    this.#format = format;
    const name = `worker-${randomBytes(5).toString('hex')}.${format === 'cjs' ? 'cjs' : 'mjs'}`;
    this.path = path.resolve('node_modules/.cache/adk-mikro-orm', name);
  }

  async build(): Promise<void> {
    await build({
      entryPoints: [path.resolve(this.#script)],
      outfile: this.path,
      bundle: true,
      platform: 'node',
      format: this.#format,
      ...(this.#format === 'cjs' ? { packages: 'external' } : IN_ONE_FILE),
      logLevel: 'error',
    });
  }

  async remove(): Promise<void> {
    await rm(this.path, { force: true });
  }
}
