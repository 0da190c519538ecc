// Formats numbers for people.
export const count = number => number.toLocaleString("en");

export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  for (; number >= 1024 && unit + 1 < units.length; unit += 1) number /= 1024;
  return `${number < 10 && unit > 0 ? number.toFixed(1) : Math.floor(number)} ${units[unit]}`;
}

export function span(seconds) {
  const MINUTE = 60, HOUR = 3600, DAY = 86400;
  if (seconds < 2 * MINUTE) return `${Math.floor(seconds)} s`;
  if (seconds < 2 * HOUR) return `${Math.floor(seconds / MINUTE)} min`;
  if (seconds < 2 * DAY) return `${Math.floor(seconds / HOUR)} h`;
  return seconds < 1000 * DAY ? `${Math.floor(seconds / DAY)} days` : "years";
}

export function micros(us) {
  if (us < 1000) return `${Math.round(us)} µs`;
  const ms = us / 1000;
  return ms < 1000 ? `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

export const clock = ms => new Date(ms).toLocaleTimeString("en-GB");
export const ballot = ({ era, round, node }) => `${era}.${round}.${node}`;
