import type { LooseEvent } from '../model/turn.js';

/** The place of a call in its session. */
export interface Place {
  /** The number of the event that made the call. */
  readonly seq: number;
  /** Its place among the calls of that event. */
  readonly number: number;
  readonly branch?: string;
}

export const byPlace = (a: Place, b: Place): number => a.seq - b.seq || a.number - b.number;

/** Lists of calls by a name, such as their id, in which the newest call of a branch is found without looking at the others. */
export class CallLists<Call extends Place> {
  readonly #all = new Map<string, Call[]>();
  readonly #inBranch = new Map<string, Call[]>();

  add(name: string, call: Call): void {
    for (const list of this.#listsOf(name, call)) {
      let at = list.length;
      for (let last = list[at - 1]; last && byPlace(last, call) > 0; last = list[at - 1]) at--;
      list.splice(at, 0, call);
    }
  }

  delete(name: string, call: Call): void {
    for (const list of this.#listsOf(name, call)) {
      const at = list.lastIndexOf(call);
      if (at >= 0) list.splice(at, 1);
    }
  }

  /** @returns the calls in their order. */
  of(name: string): readonly Call[] {
    return this.#all.get(name) ?? [];
  }

  /** @param branch undefined for the calls that have none. */
  inBranch(name: string, branch: string | undefined): readonly Call[] {
    return this.#inBranch.get(inBranch(name, branch)) ?? [];
  }

  *values(): Generator<Call> {
    for (const list of this.#all.values()) yield* list;
  }

  /**
   * @param after the number of an event: only calls of later ones.
   * @returns in the newest event with such a call that fits a branch: the first one.
   */
  newest(
    name: string,
    { branch }: LooseEvent,
    isAsked: (call: Call) => boolean = () => true,
    after = -1,
  ): Call | undefined {
    const own = typeof branch === 'string' && branch !== '' ? branch : undefined;
    const firstOfNewest = (calls: readonly Call[]) => {
      let first: Call | undefined;
      for (let at = calls.length - 1; at >= 0; at--) {
        const call = calls[at];
        if (!call || call.seq <= after || (first && call.seq !== first.seq)) break;
        if (isAsked(call)) first = call;
      }
      return first;
    };
    const found = firstOfNewest(this.inBranch(name, own));
    return found ?? firstOfNewest(own === undefined ? this.of(name) : this.inBranch(name, undefined));
  }

  #listsOf(name: string, { branch }: Call): Call[][] {
    return [listAt(this.#all, name), listAt(this.#inBranch, inBranch(name, branch))];
  }
}

/** With its length, so that no two pairs have the same text. */
const inBranch = (name: string, branch = '') => `${branch.length} ${branch}${name}`;

function listAt<Value>(lists: Map<string, Value[]>, name: string): Value[] {
  const list = lists.get(name) ?? [];
  lists.set(name, list);
  return list;
}
