// Log positions of each node: what it holds, has applied and knows to be decided, its snapshot, and the start of its
// log.
import { $, attribute, draw, each, make, row, text } from "./elements.js";
import { bytes, count } from "./units.js";

const WIDE = 1000;

function picture(svg, view, from, to) {
  const x = slot => Math.max(0, Math.min(WIDE, WIDE * (slot - from) / Math.max(1, to - from)));
  const [log, applied, decided, snapshot] = svg.querySelectorAll(".log, .applied, .decided, .snapshot");
  attribute(log, "x", x(view.log_start));
  attribute(log, "width", Math.max(0, x(view.durable) - x(view.log_start)));
  attribute(applied, "width", x(view.applied));
  attribute(decided, "x1", Math.min(WIDE - 1, x(view.decided)));
  attribute(decided, "x2", Math.min(WIDE - 1, x(view.decided)));
  snapshot.toggleAttribute("hidden", view.snapshot === null);
  attribute(snapshot, "visibility", view.snapshot === null ? "hidden" : "visible");
  if (view.snapshot) attribute(snapshot, "x", Math.max(0, x(view.snapshot.slot) - 4));
}

function bar() {
  return draw("svg", { class: "bar", viewBox: `0 0 ${WIDE} 20`, preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("rect", { x: 0, y: 0, width: WIDE, height: 20 }), draw("rect", { class: "log", y: 0, height: 20 }),
    draw("rect", { class: "applied", x: 0, y: 6, height: 8 }), draw("line", { class: "decided", y1: 0, y2: 20 }),
    draw("rect", { class: "snapshot", y: 2, width: 8, height: 16 }));
}

export function show(now) {
  const known = now.nodes.filter(node => node.view);
  const to = Math.max(1, ...known.map(node => node.view.decided), ...known.map(node => node.view.durable));
  const starts = known.map(node => Math.min(node.view.log_start, node.view.snapshot?.slot ?? Infinity, node.view.applied));
  const from = Math.min(to - 1, ...starts);
  const table = $("t-positions");
  const rows = known.flatMap(node => [{ node, key: node.node }, { node, key: `p${node.node}`, isPicture: true }]);
  each(table.tBodies[0], rows, item => item.key, ({ node, isPicture }) => {
    if (!isPicture) return row(table, String(node.node));
    const tr = make("tr", { class: "picture", "aria-hidden": "true" }, make("td", { colspan: 6 }));
    tr.cells[0].append(bar());
    return tr;
  }, (tr, { node, isPicture }) => {
    const view = node.view;
    tr.classList.toggle("stale", node.isStale);
    if (isPicture) return picture(tr.querySelector("svg"), view, from, to);
    const taking = view.snapshot_taking ? `, taking ${bytes(view.snapshot_taking.bytes)}` : "";
    const cells = [count(view.decided), count(view.applied), count(view.durable), (view.snapshot ? `${count(view.snapshot.slot)}, ${bytes(view.snapshot.bytes)}` : "none") + taking, count(view.log_start)];
    cells.forEach((words, at) => text(tr.cells[at + 1], words));
  });
  text($("f-decided"), known.length ? count(Math.max(...known.map(node => node.view.decided))) : "–");
}
