import { isObject, recordOf } from '../model/json.js';

/**
 * Whether the response of a tool says that the tool failed. There is no one form for it: ADK stores `{ error }` for a tool that threw,
 * MCP has `isError`, and ADK's guides have `status: 'error'`. Many tools return `error: null`, `''` or `{}` when nothing went wrong.
 */
export function isFailedResponse(response: unknown): boolean {
  const { error, isError, status, success } = recordOf(response);
  const hasError = isObject(error) ? Object.keys(error).length > 0 : Boolean(error);
  return hasError || isError === true || status === 'error' || success === false;
}
