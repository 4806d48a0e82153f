import type * as Package from '../../src/index.js';

/** The package as a host loads it once more, for example by `require` beside `import`: its peers stay the same. */
export function secondCopy(): typeof Package {
  const peers = ['@google/adk', '@mikro-orm/core', '@mikro-orm/migrations'].map((name) => {
    const peer = jest.requireActual<object>(name);
    return () => jest.doMock(name, () => peer);
  });
  let copy: typeof Package | undefined;
  jest.isolateModules(() => {
    for (const keep of peers) keep();
    copy = jest.requireActual<typeof Package>('../../src/index.js');
  });
  return copy!;
}
