/** Converts a Mermaid `erDiagram` to Markdown tables: Mermaid itself would be larger than the rest of the site. */
export function tablesOfDiagram(diagram: string): string {
  const tables = [...diagram.matchAll(/^ {2}(\w+) \{\n(.*?)^ {2}\}$/gms)].map(([, name = '', columns = '']) => {
    const rows = [...columns.matchAll(/^ {4}(\w+) (\w+)((?:,? (?:PK|FK|UK))*)(?: "(.*)")?$/gm)].map(
      ([, type, column, keys = '', words = '']) => `| \`${column}\` | ${type} | ${keys.trim()} | ${words} |`,
    );
    if (rows.length !== columns.trim().split('\n').length) throw new Error(`A column of ${name} could not be read`);
    return [`## \`${name}\``, '', '| Column | Type | Key | |', '| --- | --- | --- | --- |', ...rows].join('\n');
  });
  const relations = [...diagram.matchAll(/^ {2}(\w+) \S+ (\w+) : "(.*)"$/gm)].map(
    ([, one, many, words]) => `- \`${one}\` has many \`${many}\`: ${words}`,
  );
  return [...relations, '', tables.join('\n\n')].join('\n');
}
