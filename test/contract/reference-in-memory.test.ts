import { runContract } from './run-contract.js';

runContract('reference-in-memory');
