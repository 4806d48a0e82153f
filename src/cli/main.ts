#!/usr/bin/env node
import { CommanderError } from 'commander';
import { program } from './program.js';
import { fail } from './run.js';

// Whoever reads may have enough, as `head` does.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  process.exit();
});

try {
  await program().parseAsync();
} catch (error) {
  // Commander has reported it. Help and version are no errors.
  if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : 2;
  else fail(error);
}
