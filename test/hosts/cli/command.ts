import { fork, spawn, type ChildProcess, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { once } from 'node:events';
import { open } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import { WorkerBundle } from '../../support/worker-bundle.js';
import type { CommandLine } from './commands-process.js';

/** The command line in one file: it starts in a third of the time. */
const main = new WorkerBundle('packages/cli/src/main.ts');
const commands = new WorkerBundle('test/hosts/cli/commands-process.ts');

let commandsProcess: ChildProcess | undefined;
/** The command that the process of the commands is running. */
let current: Promise<unknown> = Promise.resolve();

export async function prepare(): Promise<void> {
  await Promise.all([main.build(), commands.build()]);
  commandsProcess = fork(commands.path, { execArgv: [], stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
}

export async function remove(): Promise<void> {
  commandsProcess?.kill();
  await Promise.all([main.remove(), commands.remove()]);
}

export interface Ended {
  code: number | null;
  out: string;
  err: string;
}

interface ProcessOptions {
  env?: NodeJS.ProcessEnv;
  cwd?: string;
}

/** Starts the command line as a process, without a terminal. */
export function start(args: readonly string[], { env, cwd }: ProcessOptions = {}): ChildProcessWithoutNullStreams {
  return spawn(process.execPath, [main.path, ...args], { cwd, env: { ...process.env, ...env } });
}

export async function ended(child: ChildProcessWithoutNullStreams): Promise<Ended> {
  const [out, err, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  return { code: code as number | null, out, err };
}

/** Runs the command line as a process of its own, without a terminal. */
export function runAlone(args: readonly string[], options: ProcessOptions & { input?: string } = {}): Promise<Ended> {
  const child = start(args, options);
  child.stdin.end(options.input ?? '');
  return ended(child);
}

/** Runs the command line as a process of its own that prints into a file. */
export async function runInto(file: string, args: readonly string[]): Promise<Omit<Ended, 'out'>> {
  const output = await open(file, 'w');
  const child = spawn(process.execPath, [main.path, ...args], { stdio: ['ignore', output.fd, 'pipe'] });
  const [err, [code]] = await Promise.all([text(child.stderr!), once(child, 'close')]);
  await output.close();
  return { code: code as number | null, err };
}

/** Runs the command line in the process of the commands, without a terminal. */
export async function run(args: readonly string[], { cwd }: { cwd?: string } = {}): Promise<Ended> {
  const result = current.then(async () => {
    const child = commandsProcess;
    if (!child) throw new Error('prepare() has not run');
    const line: CommandLine = { args: [...args], cwd };
    child.send(line);
    const ends = new AbortController();
    const { signal } = ends;
    const exited = once(child, 'exit', { signal }).then(([code]) =>
      Promise.reject(new Error(`It exited with ${code}`)),
    );
    try {
      const [result] = await Promise.race([once(child, 'message', { signal }), exited]);
      return result as Ended;
    } finally {
      ends.abort();
    }
  });
  current = result.catch(() => undefined);
  return result;
}

/** A script that runs its arguments on a terminal of their own, and forwards input and output. */
const TERMINAL = `
import os, pty, sys
def master(fd): return os.read(fd, 1024)
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:], master)))
`;

/** Like `run`, but on a terminal. Stdout and stderr are one text. @param typed once the output has `after`. */
export async function runOnTerminal(
  args: readonly string[],
  typed = '',
  { after = '[y/N]', onOutput = () => {} }: { after?: string; onOutput?: (shown: string) => void } = {},
): Promise<Ended> {
  const { NO_COLOR: _, ...env } = process.env;
  const child = spawn('python3', ['-c', TERMINAL, process.execPath, main.path, ...args], { env });
  // Types only after the question: the line editor loses earlier input.
  let shown = '';
  child.stdout.on('data', (chunk: Buffer) => {
    const before = shown.includes(after);
    shown += chunk.toString();
    onOutput(shown);
    if (!before && shown.includes(after)) child.stdin.write(typed);
  });
  const [err, [code]] = await Promise.all([text(child.stderr), once(child, 'close')]);
  return { code: code as number | null, out: shown, err };
}
