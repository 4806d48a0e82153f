import type {
  BaseSessionService,
  CreateEventParams,
  CreateSessionRequest,
  Event,
  GetSessionConfig,
  Session,
} from '@google/adk';
import type { SessionKey } from '../model/keys.js';

/** A store of a session service that is judged, empty at first. */
export interface ServiceStore {
  service: BaseSessionService;
  /** Another instance on the same store, as another process has it. Without it the rules of the level `shared` are left out. */
  another?: BaseSessionService;
  /** Ends what `open` began. */
  close?(): Promise<void>;
}

/** A session service to judge. */
export interface ServiceHarness {
  name: string;
  /** Makes an empty store; it is called once. */
  open(): Promise<ServiceStore>;
}

/** From those that every service must keep to those that only some must. */
export const LEVELS = ['every', 'shared'] as const;

/** Who must keep a rule: every service; or one that several processes share a store with. */
export type Level = (typeof LEVELS)[number];

/** A rule of docs/contract.md and one test that holds it. */
export interface ServiceRule {
  /** Such as `A10`. */
  rule: string;
  title: string;
  level: Level;
  /** @throws Error that says what was expected, and what was there. */
  test(this: void, context: RuleContext): Promise<void>;
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
  /** Reads a session anew, from the other service. */
  fresh(this: void, session: Session, config?: GetSessionConfig): Promise<Session>;
  /** What is in storage. */
  stored(this: void, key: SessionKey): Promise<Pick<Session, 'state'> | undefined>;
}

export function keyOf({ appName, userId, id }: Pick<Session, 'appName' | 'userId' | 'id'>): SessionKey {
  return { appName, userId, sessionId: id };
}
