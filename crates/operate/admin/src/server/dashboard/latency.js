// How long commands took, from how many took less than what: pairs of microseconds and a number, in order.

// All of these together.
export function merge(lists) {
  const sums = new Map();
  for (const [underUs, count] of lists.flat()) sums.set(underUs, (sums.get(underUs) ?? 0) + count);
  return [...sums].sort(([a], [b]) => a - b);
}

// What was added; null if a counter went back.
export function since(now, before) {
  const was = new Map(before);
  const added = now.map(([underUs, count]) => [underUs, count - (was.get(underUs) ?? 0)]);
  return added.some(([, count]) => count < 0) ? null : added.filter(([, count]) => count > 0);
}

// The time in which this part of the commands was answered, within a quarter; null if there were none.
export function percentileUs(latencies, part) {
  let left = part * latencies.reduce((sum, [, count]) => sum + count, 0);
  for (const [underUs, count] of latencies) {
    // Even within a class, a quarter of the power of two below.
    if (count > 0 && left <= count) return underUs - 2 ** Math.floor(Math.log2(underUs - 1)) / 4 * (1 - left / count);
    left -= count;
  }
  return null;
}

export const spread = latencies => ({ latencyUs: percentileUs(latencies, 0.5), p99Us: percentileUs(latencies, 0.99) });
