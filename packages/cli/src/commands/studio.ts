import type { EntityManager } from '@mikro-orm/core';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { isIP } from 'node:net';
import type { StudioOptions } from '../../../studio/src/index.js';
import type { Work } from '../run.js';
import { UsageError } from '../errors.js';
import { pricesOf } from '../files.js';
import { refuseProblems } from './web.js';

interface StudioFlags {
  port?: number;
  host?: string;
  allowChanges?: true;
  open?: true;
  prices?: string;
}

const PORT = 4_777;
const LOOPBACK = ['127.0.0.1', 'localhost', '::1'];

/** The shortest token that is accepted, in characters. */
const SHORTEST = 16;

export const studio: Work<[StudioFlags]> = async (
  { em, codec, services, terminal, signal },
  { port = PORT, host = '127.0.0.1', allowChanges = false, open = false, prices: file },
) => {
  await refuseProblems({ em });
  const token = LOOPBACK.includes(host) ? undefined : tokenOf(process.env['ADK_STUDIO_TOKEN']);
  const prices = file === undefined ? {} : { prices: await pricesOf(file) };
  const listener = await listenerFor(em, { allowChanges, ...prices, ...codec, ...services }, token);
  const server = createServer(listener).listen(port, host);
  try {
    await once(server, 'listening');
  } catch (error) {
    throw new UsageError(
      `It cannot listen on ${host}, port ${port}: ${codeOf(error)}. Choose others with --host and --port.`,
    );
  }
  const address = server.address();
  const listening = typeof address === 'object' && address ? address.port : port;
  const name = isIP(host) === 6 ? `[${host}]` : host;
  const url = `http://${name}:${listening}/${token === undefined ? '' : `?token=${token}`}`;
  await terminal.result({ url }, () => [`The studio is at ${url}`]);
  if (open)
    openInBrowser(url, (reason) => terminal.note(`No browser could be opened (${reason}): open the link yourself.`));
  if (token !== undefined) {
    terminal.note(
      `Everybody who can reach ${host} and has this link sees all sessions${allowChanges ? ', and can change them' : ''}. ` +
        'The connection is not encrypted: on a network that others use, put it behind a proxy with TLS.',
    );
  }
  terminal.note('Ctrl-C ends it.');
  if (!signal.aborted) await once(signal, 'abort');
  server.closeAllConnections();
  server.close();
};

/** What opens a link on a system, and its first arguments. Everywhere else there is xdg-open. */
const OPENERS: Partial<Record<NodeJS.Platform, readonly [string, ...string[]]>> = {
  darwin: ['open'],
  win32: ['cmd', '/c', 'start', ''],
};

/** @param onError gets the reason if there is no browser. */
function openInBrowser(url: string, onError: (reason: string) => void): void {
  const [program, ...args] = OPENERS[process.platform] ?? ['xdg-open'];
  const child = spawn(program, [...args, url], { stdio: 'ignore', detached: true });
  child.once('error', (error) => onError(codeOf(error)));
  child.once('exit', (code) => {
    if (code) onError(`${program} ended with ${code}`);
  });
  // The browser may stay open when the studio ends.
  child.unref();
}

/** Loaded here, so that no other command loads it. */
async function listenerFor(em: EntityManager, options: StudioOptions, token: string | undefined) {
  const { createStudio, tokenDoor, listenerOf } = await import('../../../studio/src/internal.js');
  if (token === undefined) return createStudio(em, options).listener;
  const door = tokenDoor(token);
  return listenerOf(door.guard(createStudio(em, { ...options, authorize: door.authorize }).fetch));
}

function tokenOf(given: string | undefined): string {
  if (given === undefined || given === '') return randomBytes(24).toString('base64url');
  if (given.length < SHORTEST || !/^[\w.~-]+$/.test(given))
    throw new UsageError(`ADK_STUDIO_TOKEN must have ${SHORTEST} or more letters, digits, '_', '.', '~' and '-'.`);
  return given;
}

const codeOf = (error: unknown) => (error instanceof Error && 'code' in error ? String(error.code) : 'it failed');
