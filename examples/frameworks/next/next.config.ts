import type { NextConfig } from 'next';
import path from 'node:path';

export default {
  // Left to Node.js to load. In a bundle, MikroORM would ask for the drivers of all databases.
  serverExternalPackages: ['@google/adk', '@mikro-orm/core', '@mikro-orm/postgresql', 'adk-mikro-orm'],
  turbopack: {
    // For this example alone, whose agent and packages are in the folders above.
    root: path.resolve(import.meta.dirname, '../..'),
    // Turbopack does not take a name that ends with .js for that of a .ts file.
    resolveAlias: { '../scripted-model.js': '../../scripted-model.ts' },
  },
} satisfies NextConfig;
