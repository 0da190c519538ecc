// Past leaders, as seen by this page's node: a strip of recent changes and a list of them.
import { $, attribute, draw, each, make, mark, text } from "./elements.js";
import { ballot, clock, span } from "./units.js";

const LISTED = 12;

export function show(now) {
  const teller = now.nodes.find(node => node.node === now.here && node.view) ?? now.nodes.find(node => node.view);
  if (!teller) return;
  text($("reigns-of"), `as seen by node ${teller.node} since it started; at most 32 changes`);
  const heardMs = now.atMs - teller.age_ms;
  const reigns = teller.view.reigns.map(reign => ({ ...reign, atMs: heardMs - reign.ago_ms }));
  strip(now, reigns);
  const listed = reigns.slice(-LISTED).reverse();
  const words = reign => reign.leader === null ? "no leader" : `node ${reign.leader} leads, ballot ${ballot(reign.ballot)}`;
  // The key is rounded coarsely, so that a change keeps its key from one document to the next.
  each($("reigns"), listed, reign => `${Math.round(reign.atMs / 2000)}-${reign.leader}-${ballot(reign.ballot)}`,
    () => make("li", {}, make("time"), make("span")),
    (li, reign) => { mark(li, "is", reign.leader === null ? "bad" : null); if (!li.children[0].textContent) text(li.children[0], clock(reign.atMs)); text(li.children[1], words(reign)); });
}

function strip(now, reigns) {
  const svg = $("c-reigns"), { width, height } = svg.getBoundingClientRect();
  if (!width || !reigns.length) return svg.replaceChildren();
  // Logarithmic scale: the most recent minutes get the most space.
  const age = atMs => Math.log1p(Math.max(0, now.atMs - atMs) / 1000);
  const oldest = Math.max(age(reigns[0].atMs), 1);
  const x = atMs => width * (1 - age(atMs) / oldest);
  const high = height - 18, parts = [];
  reigns.forEach((reign, at) => {
    const [from, to] = [x(reign.atMs), at + 1 < reigns.length ? x(reigns[at + 1].atMs) : width];
    const kind = reign.leader === null ? "nobody" : `n${(reign.leader - 1) % 6}`;
    parts.push(draw("rect", { class: kind, x: from.toFixed(1), y: 0, width: Math.max(1, to - from).toFixed(1), height: high }));
    if (reign.leader !== null && to - from > 24) parts.push(draw("text", { class: "on", x: ((from + to) / 2).toFixed(1), y: high / 2 + 4, "text-anchor": "middle" }, String(reign.leader)));
  });
  parts.push(draw("text", { x: 0, y: height - 4 }, `${span((now.atMs - reigns[0].atMs) / 1000)} ago`), draw("text", { x: width, y: height - 4, "text-anchor": "end" }, "now"));
  svg.replaceChildren(...parts);
  const last = reigns.at(-1);
  attribute(svg, "aria-label", `${reigns.length} changes; ${last.leader === null ? "no leader now" : `node ${last.leader} leads since ${clock(last.atMs)}`}`);
}
