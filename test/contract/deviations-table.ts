import { HARNESSES } from '../support/harnesses/index.js';
import type { ReferenceHarness } from '../support/harnesses/harness.js';
import { RULES } from './rules.js';

const ruleOf = (testName: string) => testName.split(' ')[0];

/** The deviations of ADK's services, as Markdown. */
export function deviationsTable(): string {
  const references = Object.values(HARNESSES).filter((harness): harness is ReferenceHarness => !harness.own);
  const cellOf = ({ deviations, races }: ReferenceHarness, rule: string) => {
    const found = Object.entries({ ...deviations, ...races }).filter(([name]) => ruleOf(name) === rule);
    return [...new Set(found.map(([, instead]) => instead))].join('; ') || '✓';
  };
  const rows = Object.entries(RULES)
    .map(([rule, title]) => [rule, title, ...references.map((reference) => cellOf(reference, rule))])
    .filter((cells) => cells.slice(2).some((cell) => cell !== '✓'));
  const header = ['', 'Rule', ...references.map(({ name }) => name)];
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  return [line(header), line(header.map(() => '---')), ...rows.map(line)].join('\n');
}
