import type { MeterProvider, Span } from '@opentelemetry/api';
import { AsyncLocalStorage } from 'node:async_hooks';
import { createRequire } from 'node:module';
import type { DialectName } from '../../entities/dialect-name.js';
import { now } from '../model/clock.js';
import { AdkMikroOrmError, DatabaseError, InvalidArgumentError } from '../model/errors.js';
import { callHost } from '../model/host-callbacks.js';
import type { Failure } from '../model/failures.js';
import type { ErrorContext } from '../model/options.js';
import { packageVersion } from '../model/version.js';

type Api = typeof import('@opentelemetry/api');

/** What a call waits for: earlier calls to its session, a connection of the pool, or a lock of the database. */
type Wait = 'queue' | 'connection' | 'lock';

type Instruments = ReturnType<typeof instrumentsOf>;

/** A watcher of the log of all sessions. */
interface LogWatcher {
  readonly system: DialectName;
  /** @returns how many positions the log is ahead of it. */
  lag(): number;
}

const SCOPE = 'adk-mikro-orm';

/** The boundaries of the semantic conventions for `db.client.operation.duration`, in s. */
const BOUNDARIES = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10];

let loaded: Telemetry | undefined;

/**
 * @returns the telemetry, if it is on. The first call loads the API of OpenTelemetry.
 * @throws InvalidArgumentError if the API is not installed.
 */
export function telemetryOf(isOn: boolean | undefined): Telemetry | undefined {
  if (!isOn) return undefined;
  return (loaded ??= new Telemetry(loadApi()));
}

/**
 * Runs work that outlives its caller, such as timers, so that its spans are not children of the caller's span.
 */
export function detached<T>(work: () => T): T {
  return loaded ? loaded.detached(work) : work();
}

function loadApi(): Api {
  // Constructors cannot wait for `import()`. In CommonJS there is no `import.meta`.
  const require = createRequire(typeof __filename === 'string' ? __filename : import.meta.url);
  try {
    return require('@opentelemetry/api') as Api;
  } catch (cause) {
    throw Object.assign(
      new InvalidArgumentError("'telemetry' needs a package that could not be loaded: npm install @opentelemetry/api"),
      { cause },
    );
  }
}

/** Spans and metrics of the calls, by the providers that the host has registered (contract N1). */
export class Telemetry {
  readonly #api: Api;
  readonly #calls = new AsyncLocalStorage<ObservedCall | undefined>();
  readonly #readers = new Set<LogWatcher>();
  #instruments: { of: MeterProvider; all: Instruments } | undefined;

  /** @internal The API's types must not be in declarations that a host compiles. */
  constructor(api: Api) {
    this.#api = api;
  }

  /** The running call; undefined outside calls. */
  get current(): ObservedCall | undefined {
    const call = this.#calls.getStore();
    // A timer that a call has started may fire after the call is over.
    return call?.isOver ? undefined : call;
  }

  /** Runs a call with its own span. Calls inside it have none. */
  async observe<T>(system: DialectName, about: ErrorContext, work: () => Promise<T>): Promise<T> {
    if (this.current?.isAbout(about)) return work();
    const { context, trace, SpanKind, SpanStatusCode } = this.#api;
    const { operation, key } = about;
    const named = { 'db.system.name': system, 'db.operation.name': operation };
    const attributes = { ...named, ...(key.sessionId && { 'gen_ai.conversation.id': key.sessionId }) };
    const span = trace.getTracer(SCOPE, packageVersion).startSpan(operation, { kind: SpanKind.INTERNAL, attributes });
    const call = new ObservedCall(about, span);
    let error: { 'error.type': string } | undefined;
    try {
      return await context.with(trace.setSpan(context.active(), span), () => this.#calls.run(call, work));
    } catch (thrown) {
      error = { 'error.type': typeOf(thrown) };
      // Without the message: it may name a state key or a user.
      span.setStatus({ code: SpanStatusCode.ERROR });
      span.setAttributes({ ...error, ...detailsOf(thrown) });
      throw thrown;
    } finally {
      // Span processors are the host's code, and the work may be committed.
      callHost(() => {
        const { duration, staleHandles } = this.#metrics();
        duration.record(call.end(), { ...named, ...error });
        if (error?.['error.type'] === 'ADK_STALE_SESSION') staleHandles.add(1, named);
      });
    }
  }

  /** Runs work that belongs to no call: without a parent span. */
  detached<T>(work: () => T): T {
    const { context, ROOT_CONTEXT } = this.#api;
    return context.with(ROOT_CONTEXT, () => this.#calls.run(undefined, work));
  }

  /**
   * An attempt failed.
   *
   * @param call whose attempt it was, if any.
   * @param isConflict whether other transactions are the reason.
   * @param isRetried whether there is another attempt.
   */
  failed(
    system: DialectName,
    call: ObservedCall | undefined,
    failure: Failure,
    { isConflict, isRetried }: { isConflict: boolean; isRetried: boolean },
  ): void {
    const attributes = { 'db.system.name': system, 'error.type': failure };
    if (isConflict) this.#metrics().conflicts.add(1, attributes);
    if (!isRetried) return;
    this.#metrics().retries.add(1, attributes);
    call?.retried(failure);
  }

  /** Events were appended. @param json the content of each. */
  appended(system: DialectName, json: readonly string[]): { events: number; bytes: number } {
    const attributes = { 'db.system.name': system };
    const bytes = json.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
    this.#metrics().events.add(json.length, attributes);
    this.#metrics().bytes.add(bytes, attributes);
    return { events: json.length, bytes };
  }

  /** Counts a handle that was behind and has caught up, or a lost lease. */
  count(what: 'rebases' | 'lostLeases', system: DialectName): void {
    this.#metrics()[what].add(1, { 'db.system.name': system });
  }

  /** Measures how far behind a reader is. @returns a function that ends that. */
  follow(reader: LogWatcher): () => void {
    this.#metrics();
    this.#readers.add(reader);
    return () => this.#readers.delete(reader);
  }

  #metrics(): Instruments {
    const of = this.#api.metrics.getMeterProvider();
    // Instruments made before the host registers its provider would never record anything.
    if (this.#instruments?.of !== of) this.#instruments = { of, all: instrumentsOf(of, this.#readers) };
    return this.#instruments.all;
  }
}

/** @param readers those whose lag is measured. */
function instrumentsOf(provider: MeterProvider, readers: ReadonlySet<LogWatcher>) {
  const meter = provider.getMeter(SCOPE, packageVersion);
  const counter = (name: string, unit: string, description: string) =>
    meter.createCounter(`adk_mikro_orm.${name}`, { unit, description });
  const lag = meter.createObservableGauge('adk_mikro_orm.log.lag', {
    unit: '{event}',
    description: 'How many positions the event log is ahead of the slowest watcher of this process',
  });
  lag.addCallback((result) => {
    const bySystem = new Map<DialectName, number>();
    for (const reader of readers) bySystem.set(reader.system, Math.max(bySystem.get(reader.system) ?? 0, reader.lag()));
    for (const [system, value] of bySystem) result.observe(value, { 'db.system.name': system });
  });
  return {
    duration: meter.createHistogram('db.client.operation.duration', {
      unit: 's',
      description: 'Duration of calls, with their retries and waits',
      advice: { explicitBucketBoundaries: BOUNDARIES },
    }),
    events: counter('append.events', '{event}', 'Events that were appended'),
    bytes: counter('append.bytes', 'By', 'JSON of the events that were appended'),
    conflicts: counter('conflicts', '{conflict}', 'Attempts that failed because of other transactions'),
    retries: counter('retries', '{retry}', 'Attempts that were made again'),
    rebases: counter('rebases', '{rebase}', 'Appends to a Session object that was behind, and was brought up to date'),
    staleHandles: counter('stale_handles', '{handle}', 'Appends refused because the Session object was behind'),
    lostLeases: counter('leases.lost', '{lease}', 'Leases that were lost'),
  };
}

/** One call while it runs. */
export class ObservedCall {
  readonly #about: ErrorContext;
  readonly #span: Span;
  readonly #start = now();
  readonly #waits = new Map<Wait, number>();
  #retries = 0;
  isOver = false;

  /** @internal As that of `Telemetry`. */
  constructor(about: ErrorContext, span: Span) {
    this.#about = about;
    this.#span = span;
  }

  isAbout({ operation, key }: ErrorContext): boolean {
    return operation === this.#about.operation && key.sessionId === this.#about.key.sessionId;
  }

  /** Begins a possible wait. @returns a function that ends it; a wait that is not ended is not recorded. */
  waiting(what: Wait): () => void {
    const start = now();
    return () => this.#waits.set(what, (this.#waits.get(what) ?? 0) + now() - start);
  }

  retried(failure: Failure): void {
    this.#retries++;
    this.#span.addEvent('retry', { 'error.type': failure });
  }

  /**
   * It has appended events.
   *
   * @param batch how many events were written together with them, these included, and the call that wrote them all.
   */
  appended(
    { events, bytes }: { events: number; bytes: number },
    batch: { size: number; writer: ObservedCall | undefined },
  ): void {
    this.#span.setAttributes({ 'adk_mikro_orm.append.events': events, 'adk_mikro_orm.append.bytes': bytes });
    // For the semantic conventions, a single one is not a batch.
    if (batch.size > 1) this.#span.setAttribute('db.operation.batch.size', batch.size);
    if (batch.writer && batch.writer !== this) this.#span.addLink({ context: batch.writer.#span.spanContext() });
  }

  /** @returns how long it took, in s. */
  end(): number {
    this.isOver = true;
    if (this.#retries > 0) this.#span.setAttribute('adk_mikro_orm.retries', this.#retries);
    for (const [what, ms] of this.#waits) this.#span.setAttribute(`adk_mikro_orm.wait.${what}`, ms / 1_000);
    this.#span.end();
    return (now() - this.#start) / 1_000;
  }
}

/** The code of our errors, the name of others, as in the semantic conventions. */
function typeOf(error: unknown): string {
  if (error instanceof AdkMikroOrmError) return error.code;
  return error instanceof Error ? error.name : '_OTHER';
}

function detailsOf(error: unknown) {
  if (!(error instanceof DatabaseError)) return {};
  const { driverCode, outcome } = error;
  return { 'adk_mikro_orm.outcome': outcome, ...(driverCode && { 'db.response.status_code': driverCode }) };
}
