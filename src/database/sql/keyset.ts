/**
 * A condition for the rows after a given one in an order. Not `(a, b) > (?, ?)`, for which MySQL and MariaDB use no index.
 *
 * @param columns the order: ascending or, with `<`, descending.
 */
export function keysetAfter(
  columns: readonly string[],
  values: readonly unknown[],
  than: '>' | '<' = '>',
): { where: string; values: unknown[] } {
  const [column = '', ...rest] = columns;
  const [value, ...restValues] = values;
  if (rest.length === 0) return { where: `${column} ${than} ?`, values: [value] };
  const inner = keysetAfter(rest, restValues, than);
  return {
    where: `${column} ${than}= ? and (${column} ${than} ? or ${inner.where})`,
    values: [value, value, ...inner.values],
  };
}
