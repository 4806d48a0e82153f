import type { RecordedStatement } from '../../support/harnesses/statement-log.js';

/** Tables with rows of users, which are distributed by user or stand whole on one node. All others are on each node. */
const WITH_USER = new Set([
  ...['sessions', 'events', 'event_parts', 'open_calls', 'session_states', 'user_states'],
  ...['changes', 'artifacts', 'artifact_versions', 'artifact_parts', 'memories', 'forgotten_memories', 'credentials'],
]);

/** A token, or what is between parentheses. */
type Node = string | Node[];

const TOKEN =
  /'(?:[^']|'')*'|(?:"[^"]*"|`[^`]*`|[a-z_]\w*)(?:\.(?:"[^"]*"|`[^`]*`|[a-z_]\w*))*|::\w+(?:\[\])?|\d+(?:\.\d+)?|[?(),]|[<>!=]+|\S/giy;

interface Found {
  /** The values by which the tables are found. */
  users: Set<unknown>;
  /** The tables that are found without one. */
  unbound: string[];
}

/**
 * Whether a router can send a statement whole to one node: each part of it that names a table of users finds it by the value of
 * `user_id`, which is the same everywhere.
 *
 * @returns why not; undefined if it can.
 */
export function whyNotRouted({ text, values }: RecordedStatement): string | undefined {
  const tokens = text.match(new RegExp(TOKEN.source, 'gi')) ?? [];
  let next = 0;
  const found: Found = { users: new Set(), unbound: [] };
  examine(treeOf(tokens.map((token) => (token === '?' ? `?${next++}` : token)))[0], values, found);
  if (found.unbound.length > 0) return `${[...new Set(found.unbound)].join(', ')} without a user`;
  return found.users.size > 1 ? 'of several users' : undefined;
}

function treeOf(tokens: readonly string[], start = 0): [Node[], number] {
  const nodes: Node[] = [];
  let i = start;
  while (i < tokens.length && tokens[i] !== ')') {
    const token = tokens[i++] ?? '';
    if (token !== '(') {
      nodes.push(token.startsWith("'") ? token : token.toLowerCase().replace(/["`]/g, ''));
      continue;
    }
    const [inner, end] = treeOf(tokens, i);
    nodes.push(inner);
    i = end + 1;
  }
  return [nodes, i];
}

/** Examines a query, or parts of one that a `union` joins, and those in it. */
function examine(nodes: readonly Node[], values: readonly unknown[], found: Found): void {
  let part: Node[] = [];
  for (const node of [...nodes, 'union']) {
    if (node === 'union') {
      examinePart(part, values, found);
      part = [];
    } else if (part.length > 0 || node !== 'all') part.push(node);
  }
}

function examinePart(part: readonly Node[], values: readonly unknown[], found: Found): void {
  const tables = tablesOf(part);
  const bound = boundUsers(part);
  for (const { name, alias } of tables) {
    const named = bound.get(alias) ?? (tables.length === 1 ? bound.get('') : undefined);
    const places = inserted(part, name) ?? named ?? [undefined];
    for (const place of places) {
      if (place === undefined) found.unbound.push(name);
      else found.users.add(values[place]);
    }
  }
  for (const node of part) if (Array.isArray(node)) examine(node, values, found);
}

function tablesOf(part: readonly Node[]) {
  const tables: { name: string; alias: string }[] = [];
  for (const [i, node] of part.entries()) {
    if (typeof node !== 'string') continue;
    const [, name = ''] = /(?:^|\.)adk_(\w+)$/.exec(node) ?? [];
    const before = part[i - 1];
    const isTable =
      before === 'from' || before === 'join' || before === 'update' || before === 'into' || before === ',';
    if (!isTable || !WITH_USER.has(name)) continue;
    const alias = part[i + 1] === 'as' ? part[i + 2] : undefined;
    tables.push({ name, alias: typeof alias === 'string' ? alias : '' });
  }
  return tables;
}

/** The places of values, by the alias whose `user_id` is compared with them, which is empty without one. */
type Bound = Map<string, readonly number[]>;

/** @returns what all conditions of a query, or of a part of them, compare `user_id` with. */
function boundUsers(nodes: readonly Node[]): Bound {
  const branches = separated(nodes, 'or');
  if (branches.length > 1) {
    // One of several conditions is to hold: each has to name a user.
    const [first = new Map<string, number[]>(), ...others] = branches.map(boundUsers);
    const named = [...first].filter(([alias]) => others.every((other) => other.has(alias)));
    return new Map(
      named.map(([alias, places]) => [alias, [...places, ...others.flatMap((other) => other.get(alias) ?? [])]]),
    );
  }
  const bound: Bound = new Map();
  const same: [string, string][] = [];
  for (const [i, node] of nodes.entries()) {
    if (Array.isArray(node)) {
      // A query has tables of its own.
      if (node[0] === 'select' || node[0] === 'with' || nodes[i - 1] === 'not') continue;
      for (const [alias, places] of boundUsers(node)) bound.set(alias, places);
      continue;
    }
    const alias = ofUser(node);
    if (alias === undefined || nodes[i + 1] !== '=') continue;
    const other = nodes[i + 2];
    const [place, equal] = [placeOf(other), ofUser(other)];
    if (place !== undefined) bound.set(alias, [place]);
    if (equal !== undefined) same.push([alias, equal], [equal, alias]);
  }
  // Those that a join makes equal, over several tables if need be.
  for (let i = 0; i < same.length; i++) {
    for (const [alias, equal] of same) {
      const places = bound.get(alias);
      if (places && !bound.has(equal)) bound.set(equal, places);
    }
  }
  return bound;
}

/** @returns the alias of a column `user_id`. */
function ofUser(node: Node | undefined): string | undefined {
  const [found, alias = ''] = (typeof node === 'string' && /^(?:(\w+)\.)?user_id$/.exec(node)) || [];
  return found === undefined ? undefined : alias;
}

/** @returns the places of the users of the rows that are inserted into a table; undefined if none are. */
function inserted(part: readonly Node[], table: string): readonly (number | undefined)[] | undefined {
  const into = part.indexOf('into');
  const named = part[into + 1];
  if (into === -1 || typeof named !== 'string' || !named.endsWith(`adk_${table}`)) return undefined;
  const columns = part[into + 2];
  const place = Array.isArray(columns) ? itemsOf(columns).findIndex((item) => item[0] === 'user_id') : -1;
  const rest = part.slice(into + 3);
  if (rest[0] === 'values') {
    const end = rest.indexOf('on');
    const rows = rest.slice(1, end === -1 ? undefined : end).filter((node) => Array.isArray(node));
    return rows.map((row) => placeOf(itemsOf(row)[place]?.[0]));
  }
  const selected = itemsOf(rest.slice(1, rest.indexOf('from')))[place]?.[0];
  // What is found by a user, and keeps it.
  const kept = selected === 'user_id' ? boundUsers(rest).get('') : undefined;
  return kept ?? [placeOf(selected)];
}

/** What commas separate. */
const itemsOf = (nodes: readonly Node[]) => separated(nodes, ',');

function separated(nodes: readonly Node[], separator: string): Node[][] {
  const items: Node[][] = [[]];
  for (const node of nodes) {
    if (node === separator) items.push([]);
    else items.at(-1)?.push(node);
  }
  return items;
}

const placeOf = (node: Node | undefined) =>
  typeof node === 'string' && /^\?\d+$/.test(node) ? Number(node.slice(1)) : undefined;
