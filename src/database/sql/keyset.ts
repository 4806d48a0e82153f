import { allOf, ifGiven, type BoundValue, type Condition } from './values.js';

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
 * A condition for the rows of an app, or of one user in it, after a given one in an order.
 *
 * @param columns the order, without `app_name`: ascending or, with `<`, descending.
 * @param last their values in the given row; undefined for all rows of the owner.
 * @returns also the columns to order by.
 */
export function ownedAfter(
  { appName, userId }: { appName: string; userId?: string | undefined },
  columns: readonly string[],
  last: readonly BoundValue[] | undefined,
  than: '>' | '<' = '>',
) {
  // What the owner names is the same in all rows.
  const isFree = (column: string) => userId === undefined || column !== 'user_id';
  const order = columns.filter(isFree);
  const values = last?.filter((_, i) => isFree(columns[i] ?? ''));
  const keyset = values && keysetAfter(order, values, than);
  const place: Condition | undefined = keyset && [keyset.where, ...keyset.values];
  return { ...allOf(['app_name = ?', appName], ifGiven('user_id = ?', userId), place), order };
}

/** The first text after all those that begin with this one. */
export const afterPrefix = (text: string) => text.replace(/.$/, (last) => String.fromCharCode(last.charCodeAt(0) + 1));
