import { allOf, ifGiven, type BoundValue } from './tables.js';

/**
 * A condition for the rows after a given one in an order. Not `(a, b) > (?, ?)`, for which MySQL and MariaDB use no index.
 *
 * @param columns the order: ascending or, with `<`, descending.
 */
export function keysetAfter(
  columns: readonly string[],
  values: readonly BoundValue[],
  than: '>' | '<' = '>',
): { where: string; values: BoundValue[] } {
  const [column = '', ...rest] = columns;
  const [value = null, ...restValues] = values;
  if (rest.length === 0) return { where: `${column} ${than} ?`, values: [value] };
  const inner = keysetAfter(rest, restValues, than);
  return {
    where: `${column} ${than}= ? and (${column} ${than} ? or ${inner.where})`,
    values: [value, value, ...inner.values],
  };
}

/**
 * A condition for the rows of an app, or of one user in it, after a given one in the order of a key.
 *
 * @param columns of the key, without `app_name`; `user_id` comes first.
 * @param last their values in the given row; undefined for all rows of the owner.
 */
export function ownedAfter(
  { appName, userId }: { appName: string; userId?: string | undefined },
  columns: readonly string[],
  last: readonly BoundValue[] | undefined,
): { where: string; values: unknown[] } {
  // What the owner names is the same in all rows.
  const named = userId === undefined ? 0 : 1;
  const keyset = last && keysetAfter(columns.slice(named), last.slice(named));
  return allOf(['app_name = ?', appName], ifGiven('user_id = ?', userId), keyset && [keyset.where, ...keyset.values]);
}
