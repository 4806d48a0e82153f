import { runContract } from './run-contract.js';

runContract('sqlite-in-memory');
