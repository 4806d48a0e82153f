import { AsyncLocalStorage } from 'node:async_hooks';

// Node.js 20 calls every AsyncLocalStorage that was ever used for every promise. Jest loads all modules anew for each test file, and
// their storages with them: after 20 files in a process a promise would take more than ten times as long.

type Storage = AsyncLocalStorage<unknown>;

/** Stays with the class, which all test files of a process share. */
const shared: typeof AsyncLocalStorage & { usedByTests?: Set<Storage> } = AsyncLocalStorage;

function observed(): Set<Storage> {
  const used = new Set<Storage>();
  const { prototype } = AsyncLocalStorage as { prototype: Storage };

  const { run } = prototype;
  prototype.run = function <R>(this: Storage, ...args: [unknown, () => R]): R {
    used.add(this);
    return run.apply(this, args) as R;
  };
  return used;
}

const used = (shared.usedByTests ??= observed());
for (const storage of used) storage.disable();
used.clear();
