import {
  BaseNode,
  REQUEST_CONFIRMATION_FUNCTION_CALL_NAME as CONFIRMATION,
  REQUEST_CREDENTIAL_FUNCTION_CALL_NAME as CREDENTIAL,
  REQUEST_INPUT_FUNCTION_CALL_NAME as INPUT,
} from '@google/adk';
import { decode, isObject, isRecord } from '../model/json.js';

type Loose = Readonly<Record<string, unknown>>;

/**
 * What ADK 2.0 takes as the answer to a long-running call: a function response of the user with the call's id, and
 *
 * | `takes` | the call | the response also has | ADK still waits after |
 * | --- | --- | --- | --- |
 * | – | of a long-running tool | anything | |
 * | `confirmation` | `adk_request_confirmation` | the question's name; a content, and what `response` holds as a text is JSON | any other (refused or ignored) |
 * | `credential` | `adk_request_credential` of an agent | the question's name; `exchangedAuthCredential` | any other (ignored) |
 * | `code` | the same, if it names an address to log in | in that credential an address or a code of OAuth | any other (ignored) |
 * | `gate` | the same of a workflow's node | anything, but in the form of a configuration also a credential | one without (ignored) |
 * | `input` | `adk_request_input` | anything | |
 * | `schema` | the same with a `response_schema` | no object, or one that fits | one that does not fit (refused) |
 *
 * Besides, `Calls` closes a confirmation when the call that it is about gets its result, and questions of workflows (the last
 * three) by a plain text, or when the workflow has gone on without them. What depends on the agent that runs is assumed to go
 * well: that it has the tool, that the login succeeds, that `plainTextToolConfirmation` is as it was.
 */
type Takes = 'confirmation' | 'credential' | 'code' | 'gate' | 'input' | 'schema';

/** ADK's question that a call is. */
export interface Question {
  takes?: Takes;
  /** The id of the call that it is about. */
  about?: string;
}

/** ADK's own requests for credentials of toolsets are about no call. */
const OF_TOOLSET = '_adk_toolset_auth_';

export const isQuestion = ({ name }: Loose): boolean => name === CONFIRMATION || name === CREDENTIAL || name === INPUT;

/** Whether a question is a workflow's, which a plain text may answer. */
export const isOfWorkflow = ({ takes }: Question): boolean =>
  takes === 'input' || takes === 'schema' || takes === 'gate';

export function questionOf(id: string, name: string, args: Loose): Question {
  if (name === INPUT) return { takes: isObject(args['response_schema']) ? 'schema' : 'input' };
  const original = name === CONFIRMATION ? args['originalFunctionCall'] : undefined;
  const about = name === CREDENTIAL ? field(args, 'functionCallId') : field(original, 'id');
  if (name === CREDENTIAL && about === id) return { takes: 'gate' };
  if (name !== CONFIRMATION && name !== CREDENTIAL) return {};
  const requested = field(field(args, 'authConfig'), 'exchangedAuthCredential');
  const takes =
    name === CONFIRMATION ? 'confirmation' : field(field(requested, 'oauth2'), 'authUri') ? 'code' : 'credential';
  return typeof about === 'string' && about && !about.startsWith(OF_TOOLSET) ? { takes, about } : { takes };
}

/** Whether ADK takes a function response as the answer. @param args of the call. */
export function isTaken(takes: Takes | undefined, { name, response }: Loose, args: Loose = {}): boolean {
  switch (takes) {
    case 'confirmation':
      return name === CONFIRMATION && isConfirmation(response);
    case 'credential':
      return name === CREDENTIAL && hasCredential(response);
    case 'code':
      return name === CREDENTIAL && hasCode(field(response, 'exchangedAuthCredential'));
    case 'gate': {
      const value = unwrapped(response, undefined);
      return !(isRecord(value) && 'authScheme' in value && 'credentialKey' in value) || hasCredential(value);
    }
    case 'schema': {
      const schema = args['response_schema'];
      return fits(unwrapped(response, schema), schema);
    }
    default:
      return true;
  }
}

/** ADK accepts both ways to write a name. */
export function field(value: unknown, name: string): unknown {
  if (!isRecord(value)) return undefined;
  return name in value ? value[name] : value[name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)];
}

function isConfirmation(response: unknown): boolean {
  if (!response) return false;
  const isText = isRecord(response) && Object.keys(response).length === 1 && 'response' in response;
  if (!isText) return true;
  try {
    return isObject(decode(String(response['response']))?.value);
  } catch {
    // An object whose `toString` is a value has no text. ADK's `JSON.parse` throws, too.
    return false;
  }
}

const hasCredential = (response: unknown): boolean => isObject(field(response, 'exchangedAuthCredential'));

const hasCode = (credential: unknown): boolean =>
  ['authResponseUri', 'authCode'].some((name) => typeof field(field(credential, 'oauth2'), name) === 'string');

/** As ADK's `unwrapResponse`. */
function unwrapped(response: unknown, schema: unknown): unknown {
  if (!isRecord(response) || Object.keys(response).length !== 1 || !('result' in response)) return response;
  const { result } = response;
  if (typeof result !== 'string' || isForText(schema)) return result;
  const parsed = decode(result);
  return parsed ? parsed.value : result;
}

function isForText(schema: unknown): boolean {
  if (!isRecord(schema)) return false;
  const { type } = schema;
  if (type === 'string' || (Array.isArray(type) && type.includes('string'))) return true;
  return [schema['anyOf'], schema['oneOf']].some((each) => Array.isArray(each) && each.some(isForText));
}

/** ADK's validator of JSON schemas is public only as a part of its nodes. */
class Validator extends BaseNode {
  constructor({ $defs, definitions, ...schema }: Loose) {
    // Within `allOf` and a property ADK leaves the schema, and what it takes for a content, as they are.
    const outputSchema = { allOf: [{ type: 'object', properties: { value: schema } }], $defs, definitions };
    super({ name: 'schema', outputSchema } as ConstructorParameters<typeof BaseNode>[0]);
  }

  protected override runImpl(): never {
    throw new Error('This node is never run.');
  }

  fits(value: unknown): boolean {
    try {
      this.validateOutput({ value });
      return true;
    } catch {
      return false;
    }
  }
}

const fits = (value: unknown, schema: unknown): boolean =>
  !isObject(value) || !isRecord(schema) || new Validator(schema).fits(value);
