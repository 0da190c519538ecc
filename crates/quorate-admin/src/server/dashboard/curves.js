// Throughput and latency since the page is open, with the moments at which leadership changed.
import { $, attribute, draw, text } from "./elements.js";
import { clock, count, micros } from "./units.js";

const SAMPLES_MAX = 300;
const samples = [];

export function take(now) {
  const last = samples.at(-1);
  samples.push({ atMs: now.atMs, leader: now.leader, changed: Boolean(last) && last.leader !== now.leader, ...now.rates });
  if (samples.length > SAMPLES_MAX) samples.shift();
}

// The next round number: 1, 2 or 5 and zeros.
function round(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find(step => step * unit >= value) * unit;
}

function curve(id, name, said) {
  const svg = $(id), { width, height } = svg.getBoundingClientRect();
  if (!width) return;
  const known = samples.filter(sample => sample[name] !== null);
  const top = round(Math.max(1, ...known.map(sample => sample[name])));
  const [left, right, above, below] = [4, width - 4, 18, height - 18];
  const first = samples[0].atMs, wide = Math.max(60_000, samples.at(-1).atMs - first);
  const x = sample => left + (right - left) * (sample.atMs - first) / wide;
  const y = value => below - (below - above) * value / top;
  const parts = [];
  for (const part of [0, 0.5, 1]) parts.push(draw("line", { class: "grid", x1: left, x2: right, y1: y(top * part), y2: y(top * part) }));
  for (const sample of samples.filter(sample => sample.changed)) parts.push(draw("line", { class: "reign", x1: x(sample), x2: x(sample), y1: above, y2: below }));
  // Where nothing is known there is no line.
  const runs = [];
  for (const sample of samples) {
    if (sample[name] === null) runs.push([]);
    else if (runs.length) runs.at(-1).push(sample);
    else runs.push([sample]);
  }
  for (const run of runs.filter(run => run.length)) {
    const d = run.map((sample, at) => `${at ? "L" : "M"}${x(sample).toFixed(1)} ${y(sample[name]).toFixed(1)}`).join("");
    parts.push(draw("path", { class: "area", d: `${d}L${x(run.at(-1)).toFixed(1)} ${below}L${x(run[0]).toFixed(1)} ${below}Z` }), draw("path", { class: "main", d }));
  }
  parts.push(draw("text", { x: left, y: above - 5 }, said(top)), draw("text", { x: left, y: height - 4 }, clock(first)));
  parts.push(draw("text", { x: x(samples.at(-1)) < width / 2 ? right : x(samples.at(-1)), y: height - 4, "text-anchor": "end" }, x(samples.at(-1)) < width / 2 ? "" : clock(samples.at(-1).atMs)));
  svg.replaceChildren(...parts);
  const values = known.map(sample => sample[name]);
  const words = values.length ? `now ${said(values.at(-1))}, between ${said(Math.min(...values))} and ${said(Math.max(...values))}` : "not known yet";
  attribute(svg, "aria-label", `${id === "c-rate" ? "Commands per second" : "Mean latency"}: ${words}`);
}

export function show() {
  if (!samples.length) return;
  curve("c-rate", "commands", value => count(Math.round(value)));
  curve("c-latency", "latencyUs", micros);
  const { commands, latencyUs } = samples.at(-1);
  text($("f-rate"), commands === null ? "–" : count(Math.round(commands)));
  text($("f-latency"), latencyUs === null ? "–" : micros(latencyUs));
}
