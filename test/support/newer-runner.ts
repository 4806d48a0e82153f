import {
  Runner,
  createEvent,
  getFunctionCalls,
  getFunctionResponses,
  isBaseAgent,
  type BaseSessionService,
  type Event,
  type RunnerConfig,
} from '@google/adk';

export const ABORTED = { errorCode: 'INVOCATION_ABORTED', errorMessage: 'Invocation was aborted by client.' };

type RunRequest = Parameters<Runner['runAsync']>[0];

/**
 * Imitates Runners newer than `@google/adk` 2.0.0, which are not released yet, after the sources of adk-js: they create a
 * missing session, and append the ends of an aborted run.
 */
export class NewerRunner extends Runner {
  readonly #autoCreateSession: boolean;

  constructor({ autoCreateSession = false, ...config }: RunnerConfig & { autoCreateSession?: boolean }) {
    super(config);
    this.#autoCreateSession = autoCreateSession;
  }

  override async *runAsync(request: RunRequest): AsyncGenerator<Event, void, undefined> {
    const key = { appName: this.appName, userId: request.userId, sessionId: request.sessionId };
    if (this.#autoCreateSession && !(await this.sessionService.getSession(key)))
      await this.sessionService.createSession(key);
    yield* super.runAsync(request);
    if (request.abortSignal?.aborted) yield* this.#end(this.sessionService, key);
  }

  async *#end(
    service: BaseSessionService,
    key: Parameters<BaseSessionService['getSession']>[0],
  ): AsyncGenerator<Event> {
    const session = (await service.getSession(key))!;
    for (const event of abortEvents(session.events, isBaseAgent(this.agent) ? this.agent.name : 'root')) {
      await service.appendEvent({ session, event });
      yield event;
    }
  }
}

/** One event for the open calls of each agent in each branch, or one without content if no call is open. */
export function abortEvents(events: readonly Event[], rootAgent: string): Event[] {
  const { invocationId } = events.at(-1)!;
  const ofRun = events.filter((event) => event.invocationId === invocationId);
  const answered = new Set(ofRun.flatMap((event) => getFunctionResponses(event).map(({ id }) => id)));
  const open = new Map<string, { event: Event; calls: ReturnType<typeof getFunctionCalls> }>();
  for (const event of ofRun) {
    const calls = getFunctionCalls(event).filter(({ id }) => id && !answered.has(id));
    if (calls.length === 0) continue;
    const of = JSON.stringify([event.author, event.branch, event.isolationScope]);
    open.set(of, { event, calls: [...(open.get(of)?.calls ?? []), ...calls] });
  }
  if (open.size === 0) return [createEvent({ invocationId, author: rootAgent, ...ABORTED })];
  return [...open.values()].map(({ event: { author, branch, isolationScope }, calls }) =>
    createEvent({
      invocationId,
      author,
      branch,
      isolationScope,
      content: {
        role: 'user',
        parts: calls.map(({ id, name }) => ({
          functionResponse: { id, name, response: { error: ABORTED.errorMessage } },
        })),
      },
      ...ABORTED,
    }),
  );
}
