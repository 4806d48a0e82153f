import { defineConfig } from '@mikro-orm/postgresql';
import { adkEntities } from 'adk-mikro-orm';

/** Also for `npx adk-mikro-orm --config dist/frameworks/mikro-orm.config.js migrate`, before any program starts. */
export default defineConfig({
  clientUrl: process.env.DATABASE_URL ?? 'postgresql://localhost/agents',
  entities: adkEntities(),
});
