/** The members of a socket that are used. */
interface Socket {
  destroy(error?: Error): void;
  readonly destroyed?: boolean;
  readonly closed?: boolean;
  once(event: 'close' | 'error', listener: () => void): unknown;
}

/** Where each driver keeps its socket. */
interface DriverConnection {
  destroy?(): void;
  /** mysql2. */
  readonly stream?: Socket;
  /** node-postgres, which knows that it is closed when its socket is. */
  readonly connection?: { readonly stream?: Socket };
  /** mariadb. */
  readonly __tests?: { getSocket(): Socket | undefined };
}

/** @returns a function that ends a driver's connection and its socket at once; undefined if there is no socket. */
export function destroyerOf(raw: object): (() => Promise<void>) | undefined {
  const driver: DriverConnection = raw;
  if (driver.__tests) return () => destroyMariadb(driver);
  const socket = driver.connection?.stream ?? driver.stream;
  if (!driver.destroy && !socket) return undefined;
  return async () => {
    driver.destroy?.();
    if (!socket || socket.closed === true) return;
    const closed = new Promise<void>((resolve) => socket.once('close', resolve));
    socket.destroy();
    await closed;
  };
}

/**
 * `destroy` of the mariadb driver first opens a connection that kills the statement under way. If that connection breaks, nothing
 * handles the rejection, and Node.js ends the process. An error of the socket ends only this connection.
 */
async function destroyMariadb(driver: DriverConnection): Promise<void> {
  const socket = driver.__tests?.getSocket();
  if (!socket) {
    driver.destroy?.();
    return;
  }
  if (socket.destroyed === true) return;
  // Don't wait for `close`: the driver removes its listeners when it handles the error.
  const handled = new Promise<void>((resolve) => socket.once('error', resolve));
  socket.destroy(new Error('The connection was ended, since its transaction may be open.'));
  await handled;
}
