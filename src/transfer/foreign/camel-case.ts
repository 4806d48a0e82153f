import { setOwn } from '../../model/state.js';
import { isRecord } from '../../model/objects.js';

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
