// Throughput and latency of the last minutes, with the changes of leader.
import { $, attribute, draw, text } from "./elements.js";
import { merge, spread } from "./latency.js";
import { align } from "./seconds.js";
import { clock, count, micros } from "./units.js";

const SAMPLES_MAX = 300;
const samples = [];
const changed = (sample, last) => Boolean(last) && last.leader !== sample.leader;

export function take(now) {
  const last = samples.at(-1);
  samples.push({ atMs: now.atMs, leader: now.leader, ...now.rates });
  samples.at(-1).changed = changed(now, last);
  if (samples.length > SAMPLES_MAX) samples.shift();
}

// Adds the nodes' histories from before this page was opened.
export function remember(histories) {
  // A single document has no rate.
  if (samples[0]?.commands === null) samples.shift();
  const first = samples[0]?.atMs ?? Infinity;
  const older = align(histories).map(([second, said, leader]) => {
    const leading = said.find(sample => sample.node === leader);
    const commands = leading ? leading.applied * 1000 / leading.span_ms : null;
    return { atMs: second * 1000, leader, commands, ...spread(merge(said.map(sample => sample.latencies))) };
  }).filter(sample => sample.atMs + 500 < first);
  older.forEach((sample, at) => { sample.changed = changed(sample, older[at - 1]); });
  older.splice(0, older.length + samples.length - SAMPLES_MAX);
  if (samples.length) samples[0].changed = changed(samples[0], older.at(-1));
  samples.unshift(...older);
}

// Rounds up to 1, 2 or 5 times a power of ten.
function round(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find(step => step * unit >= value) * unit;
}

// `names[0]` is the line with a filled area. All lines share one scale.
function curve(id, names, said) {
  const svg = $(id), { width, height } = svg.getBoundingClientRect();
  if (!width) return;
  const top = round(Math.max(1, ...samples.flatMap(sample => names.map(name => sample[name] ?? 0))));
  const [left, right, above, below] = [4, width - 4, 18, height - 18];
  const first = samples[0].atMs, wide = Math.max(60_000, samples.at(-1).atMs - first);
  const x = sample => left + (right - left) * (sample.atMs - first) / wide;
  const y = value => below - (below - above) * value / top;
  const parts = [];
  for (const part of [0, 0.5, 1]) parts.push(draw("line", { class: "grid", x1: left, x2: right, y1: y(top * part), y2: y(top * part) }));
  for (const sample of samples.filter(sample => sample.changed)) parts.push(draw("line", { class: "reign", x1: x(sample), x2: x(sample), y1: above, y2: below }));
  for (const name of names) {
    for (const run of runs(name)) {
      const d = run.map((sample, at) => `${at ? "L" : "M"}${x(sample).toFixed(1)} ${y(sample[name]).toFixed(1)}`).join("");
      if (name === names[0]) parts.push(draw("path", { class: "area", d: `${d}L${x(run.at(-1)).toFixed(1)} ${below}L${x(run[0]).toFixed(1)} ${below}Z` }));
      parts.push(draw("path", { class: name === names[0] ? "main" : "most", d }));
    }
  }
  parts.push(draw("text", { x: left, y: above - 5 }, said(top)), draw("text", { x: left, y: height - 4 }, clock(first)));
  parts.push(draw("text", { x: x(samples.at(-1)) < width / 2 ? right : x(samples.at(-1)), y: height - 4, "text-anchor": "end" }, x(samples.at(-1)) < width / 2 ? "" : clock(samples.at(-1).atMs)));
  svg.replaceChildren(...parts);
  const words = names.map(name => {
    const values = samples.map(sample => sample[name]).filter(value => value !== null);
    return values.length ? `now ${said(values.at(-1))}, between ${said(Math.min(...values))} and ${said(Math.max(...values))}` : "not known yet";
  });
  attribute(svg, "aria-label", `${id === "c-rate" ? "Commands per second" : "Latency, median and 99th percentile"}: ${words.join("; ")}`);
}

// Splits a line where values are unknown.
function runs(name) {
  const runs = [[]];
  for (const sample of samples) {
    if (sample[name] === null) runs.push([]);
    else runs.at(-1).push(sample);
  }
  return runs.filter(run => run.length);
}

export function show() {
  if (!samples.length) return;
  curve("c-rate", ["commands"], value => count(Math.round(value)));
  curve("c-latency", ["latencyUs", "p99Us"], micros);
  const { commands, latencyUs, p99Us } = samples.at(-1);
  text($("f-rate"), commands === null ? "–" : count(Math.round(commands)));
  text($("f-latency"), latencyUs === null ? "–" : micros(latencyUs));
  text($("f-p99"), p99Us === null ? "" : `p99 ${micros(p99Us)}`);
}
