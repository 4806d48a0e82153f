import type { IncomingMessage, ServerResponse } from 'node:http';
import type { CommonOptions, ErrorContext, LogCursor, SessionKey } from '../../../src/index.js';
import type { StudioScope } from './guard.js';

/** What a million tokens of a model cost, in a currency of the host's choice. */
export interface Price {
  /** Of what is sent to the model. */
  input: number;
  /** The cached part of that; `input` by default. */
  cached?: number;
  /** Of its answers. */
  output: number;
  /** Of its thoughts; `output` by default. */
  thoughts?: number;
}

/** Prices by model. The name may end before the version: `gemini-x` is also the price of `gemini-x-001`. */
export type Prices = Readonly<Record<string, Price>>;

/** The positions of readers of the event log, by names that the host chooses. */
export type LogReaders = Readonly<Record<string, LogCursor | number>>;

export interface StudioOptions extends Pick<CommonOptions, 'codec' | 'maxDecodedBytes'> {
  /** Gets the driver's own error, with SQL and stored values, for the host's log. Visitors see neither. */
  onError?: (error: unknown, context: ErrorContext) => void;
  /** The path at which it is mounted, such as `/studio`; the root by default. */
  basePath?: string;
  /**
   * Says what the sender of a request may see: `{}` for everything, `{ appName }`, `{ userId }` or both for a part, `false` for
   * nothing. It is called for each request, before anything is read. Any other result, such as `true` or a `Response`, shows
   * nothing and is reported to `onError`. Without `authorize`, everybody sees everything, but only requests whose host is
   * `localhost` or a loopback address are answered.
   */
  authorize?: (request: Request) => StudioScope | false | Promise<StudioScope | false>;
  /**
   * The host names that requests may have, with or without a port, such as `studio.example.com`. By default any with
   * `authorize`, and without it `localhost` and the loopback addresses.
   */
  hosts?: readonly string[];
  /**
   * Whether a visitor may change what is stored; false by default. A visitor can then edit title and labels, soft-delete,
   * restore, fork and rewind a session, answer a call that waits for a person, and forget memories. Each change is confirmed in
   * a form (contract H5, K3, K4, K6).
   */
  allowChanges?: boolean;
  /**
   * Is called when a visitor has answered a call, with the call's session, for example to run the agent: `runTurn(services, { key,
   * agent, waitMs })`, which waits while another worker runs the session. The page does not wait for it; what it throws is reported
   * to `onError`. If the process ends first, `findAnsweredCalls` still finds the answer.
   */
  onAnswer?: (session: SessionKey) => unknown;
  /** As for `MikroOrmSessionService`: what a visitor deletes, restores or rewinds includes the sessions of these tools. */
  toolApps?: readonly string[];
  /** What the tokens of models cost, by model. Then the usage and the first page show costs. */
  prices?: Prices;
  /** Gives the positions of the host's readers of the event log, by name. They are shown. */
  readers?: () => LogReaders | Promise<LogReaders>;
}

/** A handler of requests that answers with pages of what is stored. */
export interface Studio {
  /** Answers a request of the fetch standard, for Next, Hono and others. It never rejects. */
  fetch(this: void, request: Request): Promise<Response>;
  /** Answers a request of `http.createServer` or Express. */
  listener(this: void, request: IncomingMessage, response: ServerResponse): void;
}
