import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { databaseFolder, newName } from '../../support/run.js';
import { WorkerBundle } from '../../support/worker-bundle.js';

/** A program of `examples/`, with a new folder for its files in each test. */
export function useExample(program: string) {
  const bundle = new WorkerBundle(program);
  let folder = '';
  beforeAll(() => bundle.build());
  afterAll(() => bundle.remove());
  beforeEach(async () => {
    folder = path.join(databaseFolder(), newName());
    await mkdir(folder);
  });
  afterEach(() => rm(folder, { recursive: true }));

  /**
   * @param environment without a URL of a database the program takes SQLite.
   * @param args of Node.js.
   */
  const start = (environment: NodeJS.ProcessEnv = {}, args: readonly string[] = [bundle.path]) => {
    const { GEMINI_API_KEY: _, ADK_DATABASE_URL: __, NO_COLOR: ___, ...rest } = process.env;
    return spawn(process.execPath, args, { env: { ...rest, TMPDIR: folder, TEMP: folder, ...environment } });
  };

  const run = async (environment?: NodeJS.ProcessEnv, args?: readonly string[]) => {
    const child = start(environment, args);
    // They end when the last process that could write to them has ended.
    const [output, errors] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]);
    return { output, errors, exitCode: child.exitCode };
  };

  return { path: bundle.path, start, run };
}
