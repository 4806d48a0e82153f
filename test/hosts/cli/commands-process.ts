/** Runs one command line after the other: a process for each would load ADK each time, which takes a second. */
import { runCommandLine } from '../../../packages/cli/src/program.js';

export interface CommandLine {
  args: string[];
  cwd: string | undefined;
}

const home = process.cwd();
let written = { out: '', err: '' };

/** Collects the output of a command, which would otherwise go to `process.stdout` and `process.stderr`. */
const collect =
  (stream: keyof typeof written): typeof process.stdout.write =>
  (chunk: string | Uint8Array, encoding?: unknown, done?: unknown) => {
    written[stream] += typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString();
    for (const callback of [encoding, done]) if (typeof callback === 'function') process.nextTick(callback);
    return true;
  };
process.stdout.write = collect('out');
process.stderr.write = collect('err');

process.on('message', ({ args, cwd = home }: CommandLine) => {
  process.chdir(cwd);
  process.exitCode = undefined;
  written = { out: '', err: '' };
  void runCommandLine(args).then(() => process.send?.({ code: process.exitCode ?? 0, ...written }));
});
