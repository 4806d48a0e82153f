import type { BaseMemoryService } from '@google/adk';
import type { Verdict } from './contract.js';
import { judge } from './judge.js';
import { MEMORY_RULES } from './memory-rules.js';

/** A store of a memory service that is judged, empty at first. */
export interface MemoryStore {
  service: BaseMemoryService;
  /** Another instance on the same store, as another process has it. Without it the rules of the level `shared` are left out. */
  another?: BaseMemoryService;
  /** Ends what `open` began. */
  close?(): Promise<void>;
}

/** A memory service to judge. */
export interface MemoryHarness {
  name: string;
  /** Makes an empty store; it is called once. */
  open(): Promise<MemoryStore>;
}

/**
 * Judges a memory service by the rules that any of them must keep.
 *
 * @param harness how to open the service.
 * @returns what became of each rule, in the order of docs/contract.md.
 * @throws what opening or closing the store throws.
 */
export const checkMemoryService = (harness: MemoryHarness): Promise<Verdict[]> => judge(harness, MEMORY_RULES);
