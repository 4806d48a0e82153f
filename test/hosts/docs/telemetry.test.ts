import { readFile } from 'node:fs/promises';

interface Dashboard {
  panels: { targets: { expr: string }[] }[];
}

/** The metrics of the table in docs/telemetry.md, as the exporters for Prometheus name them. */
async function metricsOfPage(): Promise<string[]> {
  const page = await readFile('docs/telemetry.md', 'utf8');
  const rows = [...page.matchAll(/^\| `(\S+)` \| (?:s|By|\{\w+\}) \|(.*)/gm)];
  return rows.map(([, name = '', what = '']) => {
    const base = name.replaceAll('.', '_');
    if (what.includes('histogram')) return `${base}_seconds`;
    if (what.includes('gauge')) return base;
    // A unit that the name ends with is not repeated.
    return `${base}_total`;
  });
}

test('the dashboard shows every metric of docs/telemetry.md, and no other', async () => {
  const { panels } = JSON.parse(await readFile('docs/telemetry-dashboard.json', 'utf8')) as Dashboard;
  const asked = panels
    .flatMap(({ targets }) => targets)
    .flatMap(({ expr }) =>
      [...expr.matchAll(/(\w+)\{/g)].map(([, name = '']) => name.replace(/_(bucket|count|sum)$/, '')),
    );
  expect([...new Set(asked)].sort()).toEqual((await metricsOfPage()).sort());
});
