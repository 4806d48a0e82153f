import { runContract } from './run-contract.js';

runContract('better-sqlite');
