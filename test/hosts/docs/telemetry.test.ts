import { MikroORM } from '@mikro-orm/core';
import { readFile, writeFile } from 'node:fs/promises';
import { adkEntities } from '../../../entities/index.js';
import { createMigrated } from '../../support/migrated.js';
import { drawDashboard, type Dashboard } from './dashboard.js';
import { observeWork } from './observed-work.js';
import { evaluate, type Scrape } from './prometheus.js';

const PICTURE = 'docs/telemetry-dashboard.svg';
const readDashboard = async () => JSON.parse(await readFile('docs/telemetry-dashboard.json', 'utf8')) as Dashboard;

/** The metrics of the table in docs/telemetry.md, as OpenTelemetry's exporter for Prometheus names them. */
async function metricsOfPage(): Promise<string[]> {
  const page = await readFile('docs/telemetry.md', 'utf8');
  const rows = [...page.matchAll(/^\| `(\S+)` \| (?:s|By|\{\w+\}) \|(.*)/gm)];
  return rows.map(([, name = '', what = '']) => {
    const base = name.replaceAll('.', '_');
    return /histogram|gauge/.test(what) ? base : `${base}_total`;
  });
}

test('the dashboard shows every metric of docs/telemetry.md, and no other', async () => {
  const { panels } = await readDashboard();
  const asked = panels
    .flatMap(({ targets }) => targets)
    .flatMap(({ expr }) =>
      [...expr.matchAll(/(?:__name__=~"([^"]*)"|(\w+)\{[^_])/g)].map(([, pattern, name]) =>
        (pattern ?? name ?? '').replace('(_seconds)?', '').replace(/_(bucket|count|sum)$/, ''),
      ),
    );
  expect([...new Set(asked)].sort()).toEqual((await metricsOfPage()).sort());
});

/** `ADK_TEST_UPDATE=1 npx jest test/hosts/docs/telemetry` redraws the picture, from half a minute on PostgreSQL. */
test('every query of the dashboard has values, of metrics and labels that the exporters make of a run', async () => {
  const dashboard = await readDashboard();
  const isDrawn = Boolean(process.env['ADK_TEST_UPDATE']);
  const { options } = await createMigrated(isDrawn ? 'postgresql' : 'sqlite');
  const orm = await MikroORM.init({ ...options, entities: adkEntities() });
  const scrapes = await observeWork(orm, isDrawn ? 60 : 1, isDrawn ? 500 : 0);
  await orm.close(true);
  if (isDrawn) await writeFile(PICTURE, drawDashboard(dashboard, scrapes));

  const [first, last] = [scrapes[0]!, scrapes.at(-1)!];
  const targets = dashboard.panels.flatMap((panel) => panel.targets);
  for (const { query } of dashboard.templating.list) {
    const [, selector, label] =
      /^label_values\((.*), (\w+)\)$/.exec(typeof query === 'string' ? '' : query.query) ?? [];
    if (selector && label) targets.push({ expr: `sum by (${label}) (${selector})`, legendFormat: `{{${label}}}` });
  }
  expect(targets).toHaveLength(12);
  for (const target of targets) {
    for (const name of [(scrape: Scrape) => scrape, asOfCollector]) {
      const values = evaluate(target, name(first), name(last));
      expect([target.expr, [...values.keys()]]).toEqual([target.expr, expect.not.arrayContaining([''])]);
      expect(values.size).toBeGreaterThan(0);
      // A reader of the log may have caught up.
      if (!target.expr.includes('lag')) expect(Math.max(...values.values())).toBeGreaterThan(0);
    }
  }
});

/** The Collector, and Prometheus as a receiver of OTLP, append the unit to names that do not end with it. */
function asOfCollector({ seconds, samples }: Scrape): Scrape {
  const named = samples.map(({ labels, value }) => ({
    labels: { ...labels, __name__: labels['__name__']!.replace(/^(db_client_operation_duration)_/, '$1_seconds_') },
    value,
  }));
  return { seconds, samples: named };
}

test('the picture has every panel of the dashboard', async () => {
  const { panels } = await readDashboard();
  const picture = await readFile(PICTURE, 'utf8');
  const drawn = [...picture.matchAll(/<text class="panel"[^>]*>(.*?)<\/text>/g)].map(([, title]) => title);
  expect(drawn).toEqual(panels.map(({ title }) => title));
});
