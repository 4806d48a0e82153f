import { REQUEST_CONFIRMATION_FUNCTION_CALL_NAME as CONFIRMATION, createEvent } from '@google/adk';
import {
  InvalidArgumentError,
  SessionNotFoundError,
  type MikroOrmSessionService,
  type OpenCall,
  type SessionKey,
} from '../../../../src/index.js';
import { field, isTaken, questionOf } from '../../../../src/conversation/answers.js';
import { decode, isRecord, recordOf } from '../../../../src/model/json.js';

/** A call that waits for a person. */
export type Asked = Required<Pick<OpenCall, 'id' | 'name' | 'args'>>;

/** An answer that a person has given: fields, and for a confirmation whether it was given. */
interface Answer {
  response: Readonly<Record<string, unknown>>;
  isApproved?: boolean | undefined;
}

/** @returns the call that ADK asks a person to confirm, as far as it is known, and the hint; undefined for other calls. */
export function askedAbout(name: string, args: unknown): { tool?: string; args: unknown; hint?: string } | undefined {
  if (name !== CONFIRMATION) return undefined;
  const { name: tool, args: ofTool } = recordOf(field(args, 'originalFunctionCall'));
  const hint = field(field(args, 'toolConfirmation'), 'hint');
  return {
    ...(typeof tool === 'string' && { tool }),
    args: ofTool,
    ...(typeof hint === 'string' && hint !== '' && { hint }),
  };
}

export const isConfirmation = ({ name }: Pick<Asked, 'name'>): boolean => name === CONFIRMATION;

/** @param text a JSON object, or nothing. @throws InvalidArgumentError for anything else. */
export function responseIn(text: string): Record<string, unknown> {
  const json = text.trim() === '' ? {} : decode(text)?.value;
  if (!isRecord(json)) throw new InvalidArgumentError('The response must be a JSON object, such as {"answer":"yes"}.');
  return { ...json };
}

/**
 * Stores a person's answer to a call as an event of the user.
 *
 * @param service one with `onAnsweredCall: 'reject'`, so that only the first answer counts.
 * @throws InvalidArgumentError if nothing was answered, or ADK would not take the answer: the call would still wait.
 * @throws SessionNotFoundError, CallAnsweredError.
 */
export async function storeAnswer(
  service: MikroOrmSessionService,
  key: SessionKey,
  { id, name, args }: Asked,
  { response: given, isApproved }: Answer,
): Promise<void> {
  const response = isConfirmation({ name }) ? { ...given, confirmed: isApproved === true } : given;
  if (Object.keys(response).length === 0) throw new InvalidArgumentError('Nothing was answered.');
  const functionResponse = { id, name, response };
  const { takes } = questionOf(id, name, args);
  if (!isTaken(takes, functionResponse, args))
    throw new InvalidArgumentError(
      `ADK would not take this answer to ${name}, since it ${takes === 'schema' ? "does not fit the call's response_schema" : 'has no credential'}. Nothing was written.`,
    );
  const session = await service.getSession({ ...key, config: { numRecentEvents: 1 } });
  if (!session) throw new SessionNotFoundError(key.sessionId);
  const event = createEvent({ author: 'user', content: { role: 'user', parts: [{ functionResponse }] } });
  await service.appendEvent({ session, event });
}
