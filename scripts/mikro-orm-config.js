// Lets the `mikro-orm` command, which runs as plain JavaScript, load mikro-orm.config.ts and the migrations.
import { register } from 'tsx/esm/api';

register();

const { default: config } = await import('../mikro-orm.config.js');
export default config;
