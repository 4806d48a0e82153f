/** What `em.getTransactionContext()` gives, as far as it is used. */
interface HostTransaction {
  /** A method of knex, where an inner transaction has ended also when the one around it has. */
  isCompleted?(): boolean;
  /** A property of knex: the transaction that this one is a savepoint of. */
  readonly parentTransaction?: object;
  readonly isCommitted?: boolean;
  readonly isRolledBack?: boolean;
}

/** The transactions of kysely that savepoints are in; kysely's object for a savepoint does not end with its transaction. */
const outer = new WeakMap<object, object>();

/** Without it, work that was begun in a savepoint would be in an open transaction for ever. */
export function noteSavepoints(connection: { begin(options?: { ctx?: object }): Promise<object> }): void {
  const begin = connection.begin.bind(connection);
  connection.begin = async (options) => {
    const transaction = await begin(options);
    if (options?.ctx) outer.set(transaction, options.ctx);
    return transaction;
  };
}

function rootOf(transaction: HostTransaction): HostTransaction {
  const around = transaction.parentTransaction ?? outer.get(transaction);
  return around ? rootOf(around) : transaction;
}

/** Whether what `em.getTransactionContext()` gives has ended, so that no statement can be run in it. */
export function hasEnded(transaction: HostTransaction): boolean {
  const { isCommitted, isRolledBack } = rootOf(transaction);
  return transaction.isCompleted?.() ?? (isCommitted === true || isRolledBack === true);
}

/** Whether the transaction, or the one that the savepoint is in, has neither been committed nor rolled back. */
export function isOpen(transaction: HostTransaction): boolean {
  return !hasEnded(rootOf(transaction));
}
