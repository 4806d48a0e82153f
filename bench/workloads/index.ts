import { append } from './append.js';
import { batch } from './batch.js';
import { codecs } from './codecs.js';
import { concurrency } from './concurrency.js';
import { create } from './create.js';
import { history } from './history.js';
import { list } from './list.js';
import { log } from './log.js';
import { maintenance } from './maintenance.js';
import { read } from './read.js';
import { remove } from './remove.js';
import { state } from './state.js';
import type { Workload } from './workload.js';

export const WORKLOADS: readonly Workload[] = [
  create,
  append,
  history,
  state,
  concurrency,
  read,
  list,
  remove,
  batch,
  log,
  maintenance,
  codecs,
];
