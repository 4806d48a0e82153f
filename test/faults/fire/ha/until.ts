import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout } from 'node:timers/promises';

/** Long enough for a cluster on a busy machine. */
const TRIES = 1200;

/** Asks until there is an answer. @param what names what is missing, for the error. */
export async function until<T>(what: string, ask: () => Promise<T | undefined>): Promise<T> {
  for (let tries = 1; tries <= TRIES; tries++) {
    const answer = await ask();
    if (answer !== undefined) return answer;
    await setTimeout(50);
  }
  throw new Error(`It does not come to: ${what}`);
}

/** Whether somebody listens on a port of this machine. */
export async function listens(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
