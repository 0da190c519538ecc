// Latencies of commands as histograms: ordered pairs of a class's upper bound in microseconds and its count.

// Adds histograms.
export function merge(lists) {
  const sums = new Map();
  for (const [underUs, count] of lists.flat()) sums.set(underUs, (sums.get(underUs) ?? 0) + count);
  return [...sums].sort(([a], [b]) => a - b);
}

// Returns the difference of two histograms, or null if a counter decreased.
export function since(now, before) {
  const was = new Map(before);
  const added = now.map(([underUs, count]) => [underUs, count - (was.get(underUs) ?? 0)]);
  return added.some(([, count]) => count < 0) ? null : added.filter(([, count]) => count > 0);
}

// Returns the latency below which this fraction of the commands was answered, within 25 %, or null if there were none.
export function percentileUs(latencies, part) {
  let left = part * latencies.reduce((sum, [, count]) => sum + count, 0);
  for (const [underUs, count] of latencies) {
    // Interpolates linearly within a class, whose width is a quarter of the power of two below.
    if (count > 0 && left <= count) return underUs - 2 ** Math.floor(Math.log2(underUs - 1)) / 4 * (1 - left / count);
    left -= count;
  }
  return null;
}

export const spread = latencies => ({ latencyUs: percentileUs(latencies, 0.5), p99Us: percentileUs(latencies, 0.99) });
