import type {
  BaseSessionService,
  CompositeSessionKey,
  CreateEventParams,
  CreateSessionRequest,
  Event,
  GetSessionConfig,
  Session,
} from '@google/adk';

/** A store of a session service that is judged, empty at first. */
export interface ServiceStore {
  service: BaseSessionService;
  /** Another instance on the same store, as another process has it. Without it the rules of the level `shared` are left out. */
  another?: BaseSessionService;
  /**
   * Opens the same store again, as a restarted process does. The rules continue with what it returns, and its `close` is
   * the one that is called. Without it the rules of the level `durable` are left out.
   *
   * @param how if `killed` is true, the process before was killed: nothing of it may be closed or written any more before the store
   * is opened again. Otherwise the service and its connections are closed first.
   */
  reopen?(how: { killed: boolean }): Promise<ServiceStore>;
  /** Ends what `open` began. */
  close?(): Promise<void>;
}

/** A session service to judge. */
export interface ServiceHarness {
  name: string;
  /** Makes an empty store; it is called once. */
  open(): Promise<ServiceStore>;
}

/** Who must keep a rule: every service; one that several processes share a store with; one whose store outlives its processes. */
export type Level = 'every' | 'shared' | 'durable';

/** From those that every service must keep to those that only some must. */
export const LEVELS: readonly Level[] = ['every', 'shared', 'durable'];

export interface CommonRule {
  /** Such as `A10`. */
  rule: string;
  title: string;
}

/** A rule of docs/contract.md and one test that holds it. */
export interface ServiceRule extends CommonRule {
  level: Exclude<Level, 'durable'>;
  /** @throws Error that says what was expected, and what was there. */
  test(this: void, context: RuleContext): Promise<void>;
}

/** As `ServiceRule`, for a store that is opened again. */
export interface DurableRule extends CommonRule {
  level: 'durable';
  test(this: void, context: DurableContext): Promise<void>;
}

/** An event's fields, with its state delta at hand. */
export type EventParams = CreateEventParams & { delta?: Record<string, unknown> };

/** What a rule is tested with. */
export interface RuleContext {
  service: BaseSessionService;
  another: BaseSessionService;
  /** An app that no other test uses. */
  app: string;
  /** Creates a session, of alice in this app unless the request says otherwise. */
  create(this: void, request?: Partial<CreateSessionRequest>): Promise<Session>;
  /** Makes an event and appends it. */
  append(this: void, session: Session, params?: EventParams, service?: BaseSessionService): Promise<Event>;
  /** Reads a session again, from the other service. */
  fresh(this: void, session: Session, config?: GetSessionConfig): Promise<Session>;
  /** What is in storage. */
  stored(
    this: void,
    key: CompositeSessionKey,
  ): Promise<Pick<Session, 'state' | 'events' | 'lastUpdateTime'> | undefined>;
}

export interface DurableContext extends RuleContext {
  /** @returns the service on the store that was opened again. */
  reopen(this: void, how: { killed: boolean }): Promise<BaseSessionService>;
}

export function keyOf({ appName, userId, id }: Pick<Session, 'appName' | 'userId' | 'id'>): CompositeSessionKey {
  return { appName, userId, sessionId: id };
}
