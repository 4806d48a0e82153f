import { runContract } from './run-contract.js';

runContract('reference-database-sqlite');
