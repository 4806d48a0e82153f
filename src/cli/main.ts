#!/usr/bin/env node
import { runCommandLine } from './program.js';

// Whoever reads may have enough, as `head` does.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  process.exit();
});

await runCommandLine(process.argv.slice(2));
