import type { NextConfig } from 'next';
import path from 'node:path';

export default {
  // Loaded by Node.js: in a bundle, MikroORM would need the drivers of all databases.
  serverExternalPackages: ['@google/adk', '@mikro-orm/core', '@mikro-orm/postgresql', 'adk-mikro-orm'],
  turbopack: {
    // Only for this example, whose agent and packages are in the folders above.
    root: path.resolve(import.meta.dirname, '../..'),
  },
} satisfies NextConfig;
