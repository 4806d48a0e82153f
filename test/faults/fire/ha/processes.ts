import { execFileSync } from 'node:child_process';
import { setTimeout } from 'node:timers/promises';

interface Process {
  pid: number;
  parent: number;
  /** Whether it has ended, but its parent has not waited for it. */
  isEnded: boolean;
  command: string;
}

function processes(): Process[] {
  const table = execFileSync('ps', ['-e', '-ww', '-o', 'pid=,ppid=,stat=,args='], { encoding: 'utf8' });
  return table.split('\n').flatMap((line) => {
    const [, pid, parent, status = '', command = ''] = /^\s*(\d+)\s+(\d+)\s+(\S+)\s+(.*)$/.exec(line) ?? [];
    return pid === undefined
      ? []
      : [{ pid: Number(pid), parent: Number(parent), isEnded: status.startsWith('Z'), command }];
  });
}

/** Selects processes; their descendants are included. */
export type Roots = (process: Process) => boolean;

export const withId =
  (id: number): Roots =>
  ({ pid }) =>
    pid === id;

/** Selects processes whose command names a file in a folder. */
export const ofFolder =
  (folder: string): Roots =>
  ({ command }) =>
    command.includes(`${folder}/`);

function tree(roots: Roots): number[] {
  const all = processes().filter(({ isEnded }) => !isEnded);
  const found = new Set(all.filter(roots).map(({ pid }) => pid));
  for (let before = -1; before < found.size;) {
    before = found.size;
    for (const { pid, parent } of all) if (found.has(parent)) found.add(pid);
  }
  return [...found];
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It has ended in the meantime.
  }
}

/** Stops processes until none of them can start another. @returns their ids. */
export function freezeAll(roots: Roots): number[] {
  const frozen = new Set<number>();
  for (;;) {
    const more = tree(roots).filter((pid) => !frozen.has(pid));
    if (more.length === 0) return [...frozen];
    for (const pid of more) {
      send(pid, 'SIGSTOP');
      frozen.add(pid);
    }
  }
}

export function thawAll(roots: Roots): void {
  for (const pid of tree(roots)) send(pid, 'SIGCONT');
}

/** Kills processes at once, like a host that loses its power. */
export async function killAll(roots: Roots): Promise<void> {
  const killed = new Set(freezeAll(roots));
  for (const pid of killed) send(pid, 'SIGKILL');
  while (processes().some(({ pid, isEnded }) => killed.has(pid) && !isEnded)) await setTimeout(10);
}

/** During `work`, starts a server again whenever it ends, like a supervisor. */
export async function whileSupervised<T>(
  server: { readonly isRunning: boolean; start(): Promise<void> },
  work: () => Promise<T>,
): Promise<T> {
  const end = new AbortController();
  const { signal } = end;
  const supervising = (async () => {
    while (!signal.aborted) {
      if (!server.isRunning) await server.start().catch(() => undefined);
      await setTimeout(100, undefined, { signal }).catch(() => undefined);
    }
  })();
  try {
    return await work();
  } finally {
    end.abort();
    await supervising;
  }
}
