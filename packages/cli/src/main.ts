#!/usr/bin/env node
import { inWords } from './files.js';
import { runCommandLine } from './program.js';
import { fail } from './run.js';

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  // The reader, such as `head`, may close the pipe early.
  if (error.code !== 'EPIPE') fail(inWords('The output', 'written', error));
  process.exit();
});

await runCommandLine(process.argv.slice(2));
