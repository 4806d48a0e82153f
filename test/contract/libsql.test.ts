import { runContract } from './run-contract.js';

runContract('libsql');
