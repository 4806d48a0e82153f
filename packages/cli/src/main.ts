#!/usr/bin/env node
import { runCommandLine } from './program.js';

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  // The reader, such as `head`, may close the pipe early.
  void (error.code === 'EPIPE' ? Promise.resolve() : report(error)).finally(() => process.exit());
});

async function report(error: Error): Promise<void> {
  const [{ inWords }, { fail }] = await Promise.all([import('./files.js'), import('./run.js')]);
  fail(inWords('The output', 'written', error));
}

await runCommandLine(process.argv.slice(2));
