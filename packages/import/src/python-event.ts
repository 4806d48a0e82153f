import type { EventRecord } from '../../../src/internal.js';
import type { ForeignRow } from './foreign-store.js';
import { setOwn } from '../../../src/model/state.js';
import { isRecord } from '../../../src/model/json.js';

/** More paths with names that users of adk-python choose (events/event_actions.py; `Part` and `UiWidget`). */
const MORE_USERS = [
  'actions.set_model_response',
  'actions.render_ui_widgets.payload',
  'actions.route',
  'content.parts.part_metadata',
  'actions.compaction.compacted_content.parts.function_call.args',
  'actions.compaction.compacted_content.parts.function_response.response',
  'actions.compaction.compacted_content.parts.part_metadata',
];

/** The scopes of OAuth 2, by their names. */
const SCOPES = [
  'authorization_code',
  'authorizationCode',
  'implicit',
  'password',
  'client_credentials',
  'clientCredentials',
];
const AUTH_USERS = new Set(SCOPES.map((flow) => `auth_scheme.flows.${flow}.scopes`));

/**
 * The event that adk-python dumped (`Event.model_dump` in sessions/schemas/v1.py and sqlite_session_service.py): times are in
 * seconds, bytes in the alphabet of base64 for URLs, and auth configs in snake_case.
 *
 * @param users the paths with names that users of ADK JS choose.
 */
export function pythonEvent(
  json: Record<string, unknown>,
  row: ForeignRow,
  users: ReadonlySet<string>,
): EventRecord['event'] {
  const event = toCamelCase(json, new Set([...users, ...MORE_USERS])) as Record<string, unknown>;
  const actions = isRecord(event['actions']) ? event['actions'] : {};
  const { compaction } = actions;
  standardBytes(event['content']);
  if (isRecord(compaction)) {
    standardBytes(compaction['compactedContent']);
    for (const name of ['startTimestamp', 'endTimestamp']) compaction[name] = msOf(compaction[name]);
  }
  return {
    ...event,
    // These columns take precedence over the JSON.
    id: row['id'] as string,
    invocationId: row['invocation_id'],
    timestamp: msOf(json['timestamp']) as number,
    actions: filledActions({ ...actions, requestedAuthConfigs: authConfigs(actions['requestedAuthConfigs']) }),
    longRunningToolIds: event['longRunningToolIds'] ?? [],
  };
}

/** Adds what ADK JS expects in every event's actions. */
export function filledActions(actions: Record<string, unknown>): Record<string, unknown> {
  const { stateDelta, artifactDelta, requestedAuthConfigs, requestedToolConfirmations } = actions;
  return {
    ...actions,
    stateDelta: stateDelta ?? {},
    artifactDelta: artifactDelta ?? {},
    requestedAuthConfigs: requestedAuthConfigs ?? {},
    requestedToolConfirmations: requestedToolConfirmations ?? {},
  };
}

/** Python has microseconds; without rounding, a product of doubles would have more digits. */
export function msOf(seconds: unknown): unknown {
  return typeof seconds === 'number' ? Math.round(seconds * 1e6) / 1e3 : seconds;
}

/** Auth configs by function call; `type_` and `in_` are written so because Python reserves the plain names. */
function authConfigs(configs: unknown): unknown {
  if (!isRecord(configs)) return configs;
  const result = {};
  for (const [call, config] of Object.entries(configs))
    setOwn(result, call, toCamelCase(withoutUnderscores(config), AUTH_USERS));
  return result;
}

function withoutUnderscores(value: unknown): unknown {
  if (!isRecord(value)) return value;
  const names: Record<string, string> = { type_: 'type', in_: 'in' };
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [
      names[key] ?? key,
      key === 'scopes' ? inner : withoutUnderscores(inner),
    ]),
  );
}

/** Converts the bytes in a content to the alphabet that ADK JS reads. */
function standardBytes(content: unknown): void {
  const parts: unknown = isRecord(content) ? content['parts'] : undefined;
  const standard = (owner: unknown, name: string) => {
    if (!isRecord(owner)) return;
    const bytes = owner[name];
    if (typeof bytes === 'string') owner[name] = bytes.replaceAll('-', '+').replaceAll('_', '/');
  };
  for (const part of Array.isArray(parts) ? (parts as unknown[]) : []) {
    if (!isRecord(part)) continue;
    standard(part, 'thoughtSignature');
    standard(part['inlineData'], 'data');
    const { functionResponse } = part;
    if (isRecord(functionResponse)) standardBytes({ parts: functionResponse['parts'] });
  }
}

/**
 * Turns names in snake_case into those of ADK JS.
 *
 * @param users the paths, in names as they are stored, under which names are the user's and stay.
 */
export function toCamelCase(value: unknown, users: ReadonlySet<string>, path = ''): unknown {
  if (Array.isArray(value)) return value.map((item) => toCamelCase(item, users, path));
  if (!isRecord(value)) return value;
  const result = {};
  for (const [key, inner] of Object.entries(value)) {
    const innerPath = path ? `${path}.${key}` : key;
    setOwn(result, camelCased(key), users.has(innerPath) ? inner : toCamelCase(inner, users, innerPath));
  }
  return result;
}

export const camelCased = (name: string) => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
