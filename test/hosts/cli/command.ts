import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { WorkerBundle } from '../../faults/processes/worker-bundle.js';

/** The command line in one file: it starts in a third of the time. */
export const bundle = new WorkerBundle('../../../src/cli/main.ts');

export interface Ended {
  code: number | null;
  out: string;
  err: string;
}

interface CommandOptions {
  input?: string;
  env?: NodeJS.ProcessEnv;
  cwd?: string;
}

/** Starts the command line as a process, without a terminal. */
export function start(args: readonly string[], { env, cwd }: CommandOptions = {}): ChildProcessWithoutNullStreams {
  return spawn(process.execPath, [bundle.path, ...args], { cwd, env: { ...process.env, ...env } });
}

export async function ended(child: ChildProcessWithoutNullStreams): Promise<Ended> {
  const [out, err, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  return { code: code as number | null, out, err };
}

/** Runs the command line as a process, without a terminal. */
export function run(args: readonly string[], options: CommandOptions = {}): Promise<Ended> {
  const child = start(args, options);
  child.stdin.end(options.input ?? '');
  return ended(child);
}

/** Runs its arguments on a terminal of its own, and passes on what is typed and shown. */
const TERMINAL = `
import os, pty, sys
def master(fd): return os.read(fd, 1024)
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:], master)))
`;

/** As `run`, on a terminal. Stdout and stderr come as one. */
export async function runOnTerminal(args: readonly string[], typed = ''): Promise<Ended> {
  const { NO_COLOR: _, ...env } = process.env;
  const child = spawn('python3', ['-c', TERMINAL, process.execPath, bundle.path, ...args], { env });
  // Typed when it is asked for: what comes before the question is lost to the line editor.
  let shown = '';
  child.stdout.on('data', (chunk: Buffer) => {
    const before = shown.includes('[y/N]');
    shown += chunk.toString();
    if (!before && shown.includes('[y/N]')) child.stdin.write(typed);
  });
  const [err, [code]] = await Promise.all([text(child.stderr), once(child, 'close')]);
  return { code: code as number | null, out: shown, err };
}
