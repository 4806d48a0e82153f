import { SessionLeases } from '../../../../src/index.js';
import { printable } from '../../../studio/src/operations/words.js';
import { Unfinished } from '../errors.js';
import type { SessionWork, Work } from '../run.js';

export const list: Work<[{ appName?: string; userId?: string; limit?: number }]> = async (
  { em, terminal },
  options,
) => {
  const leases = await new SessionLeases(em).held(options);
  const rows = leases.map(({ appName, userId, sessionId, holder, since, expiresAt }) => [
    ...[appName, userId, { id: sessionId }, holder, { time: since }, { time: expiresAt }],
  ]);
  const head = ['app', 'user', 'session', 'held by', 'since', 'expires'];
  await terminal.result(leases, () => terminal.table([head, ...rows]));
  if (leases.length === 0) terminal.note('Nobody holds a lease.');
};

export const release: SessionWork<object> = async ({ em, terminal, confirm }, key) => {
  const leases = new SessionLeases(em);
  const held = await leases.current(key);
  if (!held) throw new Unfinished('Nobody holds the lease of this session.');
  const holder = printable(held.holder);
  await confirm(`This ends the lease of ${holder}: its next append fails. Continue?`, 'Nothing was changed.');
  const released = await leases.release(key);
  await terminal.result({ ...key, holder: held.holder, released }, () => [`The lease of ${holder} has ended.`]);
};
