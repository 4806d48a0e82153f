import type { Level, ServiceRule, DurableRule } from '../../packages/session-contract/src/rule.js';
import type { Deviations } from '../support/harnesses/deviations.js';
import { RULES } from './rules.js';

export const table = (rows: readonly (readonly string[])[]) =>
  rows.map((cells) => `| ${cells.join(' | ')} |`).join('\n');

const dashes = (header: readonly string[]) => header.map(() => '---');

/** What each service does instead of the rules that it breaks, by the names of their tests, as Markdown. */
export function deviationsTable(services: readonly { name: string; deviations: Deviations }[]): string {
  const cellOf = (deviations: Deviations, rule: string) => {
    const found = Object.entries(deviations).filter(([name]) => name.startsWith(`${rule} `));
    return [...new Set(found.map(([, instead]) => instead))].join('; ') || '✓';
  };
  const rows = Object.entries(RULES)
    .map(([rule, title]) => [rule, title, ...services.map(({ deviations }) => cellOf(deviations, rule))])
    .filter((cells) => cells.slice(2).some((cell) => cell !== '✓'));
  const header = ['', 'Rule', ...services.map(({ name }) => name)];
  const isRepeated = (cell: string, i: number, cells: readonly string[]) =>
    i > 2 && cell !== '✓' && cell === cells[i - 1];
  const short = rows.map((cells) => cells.map((cell, i) => (isRepeated(cell, i, cells) ? 'the same' : cell)));
  return table([header, dashes(header), ...short]);
}

/** How many tests of each level a rule has, as Markdown. */
export function publishedTable(rules: readonly (ServiceRule | DurableRule)[]): string {
  const levels: Level[] = ['every', 'shared', 'durable'];
  const header = ['', 'Rule', ...levels.map((level) => `\`${level}\``)];
  const rows = Object.entries(RULES).map(([rule, title]) => {
    const counts = levels.map((level) => rules.filter((each) => each.rule === rule && each.level === level).length);
    return [rule, title, ...counts.map((count) => (count ? String(count) : ''))];
  });
  return table([header, dashes(header), ...rows.filter((cells) => cells.slice(2).some(Boolean))]);
}
