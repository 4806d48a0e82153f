import { runContract } from './run-contract.js';

runContract('pglite-in-memory');
