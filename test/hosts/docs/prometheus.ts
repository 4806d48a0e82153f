import { metrics } from '@opentelemetry/api';
import { PrometheusSerializer } from '@opentelemetry/exporter-prometheus';
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';

/** The value of a series at one time. The label `__name__` is its name. */
interface Sample {
  labels: Record<string, string>;
  value: number;
}

export interface Scrape {
  /** Time since the process began. */
  seconds: number;
  samples: Sample[];
}

export interface Target {
  expr: string;
  legendFormat: string;
}

/** Registers the SDK. @returns a function that scrapes this process, as OpenTelemetry's exporter serves the metrics. */
export function scraper(): () => Promise<Scrape> {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 2 ** 31 - 1 });
  metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }));
  return async () => {
    const { resourceMetrics } = await reader.collect();
    // eslint-disable-next-line @typescript-eslint/no-unsafe-enum-assignment -- the exporter has its own copy of the SDK
    const served = new PrometheusSerializer().serialize(resourceMetrics);
    const samples = [...served.matchAll(/^(\w+)(?:\{(.*)\})? (\S+)$/gm)].map(([, name = '', labels = '', value]) => ({
      labels: {
        __name__: name,
        // Prometheus adds the address that it scraped.
        instance: 'agents:9464',
        ...Object.fromEntries([...labels.matchAll(/(\w+)="([^"]*)"/g)].map(([, label, text]) => [label, text])),
      },
      value: Number(value),
    }));
    return { seconds: performance.now() / 1_000, samples };
  };
}

const QUERY =
  /^(?:histogram_quantile\((?<quantile>\S+), )?(?<aggregate>sum|max)(?: by \((?<by>[^)]*)\) )?\((?:(?<over>rate|increase)\()?(?<metric>\w*)\{(?<matchers>.*?)\}(?:\[\$__rate_interval\])?\)+$/;

/**
 * Evaluates a query like Prometheus, as far as the dashboard needs.
 *
 * @returns the values, by the legend.
 * @throws if the samples lack a metric or a label of the query.
 */
export function evaluate({ expr, legendFormat }: Target, before: Scrape, after: Scrape): Map<string, number> {
  const query = QUERY.exec(expr)?.groups;
  if (!query) throw new Error(`${expr} is not understood`);
  const { quantile, aggregate, over, metric, matchers = '' } = query;
  const [name, ...others] = [
    ...(metric ? [{ label: '__name__', operator: '=~', value: metric }] : []),
    ...[...matchers.matchAll(/(\w+)(=~|!=)"([^"]*)"/g)].map(([, label = '', operator, value = '']) => ({
      label,
      operator,
      value: value.replace('$system', '.*'),
    })),
  ].map(({ label, operator, value }) => {
    const isEqual = new RegExp(`^(?:${value})$`);
    return { label, matches: ({ labels }: Sample) => isEqual.test(labels[label] ?? '') === (operator === '=~') };
  });
  const series = after.samples.filter((sample) => name?.matches(sample));
  if (series.length === 0) throw new Error(`${expr}: there is no such metric`);
  const by = query['by']?.split(', ') ?? [];
  for (const label of [...by, ...others.map((matcher) => matcher.label)]) {
    if (!series.some(({ labels }) => label in labels)) throw new Error(`${expr}: there is no label ${label}`);
  }

  const seconds = over === 'rate' ? after.seconds - before.seconds : 1;
  const earlier = new Map(before.samples.map(({ labels, value }) => [JSON.stringify(labels), value]));
  const valueOf = ({ labels, value }: Sample) =>
    over ? (value - (earlier.get(JSON.stringify(labels)) ?? 0)) / seconds : value;
  const groups = new Map<string, Sample[]>();
  for (const sample of series.filter((each) => others.every(({ matches }) => matches(each)))) {
    const legend = legendFormat.replace(/\{\{(\w+)\}\}/g, (_, label: string) => sample.labels[label] ?? '');
    groups.set(legend, [...(groups.get(legend) ?? []), sample]);
  }
  return new Map(
    [...groups].map(([legend, samples]) => {
      if (quantile) return [legend, quantileOf(Number(quantile), samples, valueOf)];
      const values = samples.map(valueOf);
      return [legend, aggregate === 'max' ? Math.max(...values) : values.reduce((sum, value) => sum + value, 0)];
    }),
  );
}

/** Assumes that values are evenly spread within a bucket, like Prometheus. @returns NaN if nothing was measured. */
function quantileOf(quantile: number, samples: Sample[], valueOf: (sample: Sample) => number): number {
  const buckets = new Map<number, number>();
  for (const sample of samples) {
    const bound = Number(sample.labels['le']?.replace('+Inf', 'Infinity'));
    buckets.set(bound, (buckets.get(bound) ?? 0) + valueOf(sample));
  }
  const rank = quantile * (buckets.get(Infinity) ?? 0);
  let [least, below] = [0, 0];
  for (const [bound, count] of [...buckets].sort(([a], [b]) => a - b)) {
    if (count >= rank && rank > 0)
      return bound === Infinity ? least : least + ((bound - least) * (rank - below)) / (count - below);
    [least, below] = [bound, count];
  }
  return NaN;
}
