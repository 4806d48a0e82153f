import { readFileSync } from 'node:fs';

/** The rules of docs/contract.md, by number, each with its first sentence. */
export const RULES: Readonly<Record<string, string>> = Object.fromEntries(
  [...readFileSync('docs/contract.md', 'utf8').matchAll(/^- \*\*([A-Z]\d+)\. (.*?)\.\*\*/gms)].map(
    ([, rule = '', title = '']) => [rule, title.replace(/\s+/g, ' ')],
  ),
);
