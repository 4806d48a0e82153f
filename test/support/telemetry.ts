import { context, metrics, trace, type Attributes } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
  type ReadableSpan,
} from '@opentelemetry/sdk-trace-base';

const SCOPE = 'adk-mikro-orm';

/** Everything that OpenTelemetry's SDK has recorded. */
export interface Recorded {
  /** Spans that have ended, in the order in which they began: ours, ADK's, and all. */
  spans(): { spans: ReadableSpan[]; ofAdk: ReadableSpan[]; all: ReadableSpan[] };
  /** The names of our spans that have not ended. */
  open(): string[];
  /** Our metrics since the last call, by name. */
  metrics(): Promise<Record<string, { attributes: Attributes; value: unknown }[]>>;
  /** Forgets the spans. */
  reset(): void;
}

let recorded: Recorded | undefined;

/** Registers the SDK with exporters in memory, once for a test file: ADK keeps the first tracer that it gets. */
export async function recordTelemetry(): Promise<Recorded> {
  recorded ??= register();
  recorded.reset();
  await recorded.metrics();
  return recorded;
}

function register(): Recorded {
  const exporter = new InMemorySpanExporter();
  const exporting = new SimpleSpanProcessor(exporter);
  const open = new Map<string, string>();
  const provider = new BasicTracerProvider({
    spanProcessors: [
      exporting,
      {
        onStart: (span) => {
          if (span.instrumentationScope.name === SCOPE) open.set(span.spanContext().spanId, span.name);
        },
        onEnd: (span) => void open.delete(span.spanContext().spanId),
        forceFlush: () => Promise.resolve(),
        shutdown: () => Promise.resolve(),
      },
    ],
  });
  trace.setGlobalTracerProvider(provider);
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  const measured = new InMemoryMetricExporter(AggregationTemporality.DELTA);
  const reader = new PeriodicExportingMetricReader({ exporter: measured, exportIntervalMillis: 2 ** 31 - 1 });
  metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }));

  const startOf = ({ startTime: [s, ns] }: ReadableSpan) => s * 1e9 + ns;
  return {
    spans: () => {
      const all = exporter.getFinishedSpans().sort((a, b) => startOf(a) - startOf(b));
      const of = (scope: string) => all.filter(({ instrumentationScope }) => instrumentationScope.name === scope);
      return { spans: of(SCOPE), ofAdk: of('gcp.vertex.agent'), all };
    },
    open: () => [...open.values()],
    metrics: async () => {
      measured.reset();
      await reader.forceFlush();
      const scopes = measured.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics);
      const ours = scopes.filter(({ scope }) => scope.name === SCOPE).flatMap((each) => each.metrics);
      return Object.fromEntries(
        ours
          .map(({ descriptor, dataPoints }): [string, { attributes: Attributes; value: unknown }[]] => [
            descriptor.name,
            dataPoints.map(({ attributes, value }) => ({ attributes, value })),
          ])
          .filter(([, points]) => points.length > 0),
      );
    },
    reset: () => exporter.reset(),
  };
}
