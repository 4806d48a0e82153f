import { fork, type ChildProcess, type Serializable } from 'node:child_process';
import { once } from 'node:events';
import { WorkerBundle } from '../../support/worker-bundle.js';

/**
 * For the tests of a file that start processes, which end with the file.
 *
 * @param script what the processes run; its path in the repository.
 * @returns a function that starts a process, gives it a job, and returns the process with its first report.
 */
export function firstReports<Worker extends { job: Serializable; report: unknown }>(script: string) {
  const bundle = new WorkerBundle(script);
  const children: ChildProcess[] = [];

  beforeAll(() => bundle.build());

  afterAll(async () => {
    for (const child of children) child.kill('SIGKILL');
    await bundle.remove();
  });

  return async (job: Worker['job']): Promise<{ child: ChildProcess; report: Worker['report'] }> => {
    const child = fork(bundle.path, { execArgv: [] });
    children.push(child);
    child.send(job);
    const [report] = (await once(child, 'message')) as [Worker['report']];
    return { child, report };
  };
}
