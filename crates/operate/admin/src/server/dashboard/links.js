// Matrix of round trips: a row is the measuring node, a column its peer.
import { $, each, make, mark, text } from "./elements.js";
import { micros } from "./units.js";

function cell(td, from, to) {
  const [main, under] = td.children;
  td.className = from.node === to.node ? "self" : "";
  const set = (is, words, more = "") => { mark(td, "is", is); text(main, words); text(under, more); };
  if (from.node === to.node) return set(null, "·");
  if (from.isStale) return set(null, "?", "stale");
  const member = from.view.members.find(member => member.node === to.node);
  if (!member) return set(null, "?", "unknown");
  if (!member.connected) return set("bad", "✕", "cut");
  const rtt = member.plane?.rtt_us ?? null, way = member.plane?.way ?? "";
  set(member.plane?.why ? "wait" : "good", rtt === null ? "–" : micros(rtt), way);
}

export function show(now) {
  const table = $("t-links");
  if (!table.tHead.rows.length) table.tHead.append(make("tr", {}, make("th", { scope: "col" }, "From")));
  const header = table.tHead.rows[0];
  while (header.cells.length > now.nodes.length + 1) header.lastChild.remove();
  while (header.cells.length < now.nodes.length + 1) header.append(make("th", { scope: "col" }));
  now.nodes.forEach((node, at) => text(header.cells[at + 1], `to ${node.node}`));
  each(table.tBodies[0], now.nodes, node => node.node, node => make("tr", {}, make("th", { scope: "row" }, `node ${node.node}`)), (tr, from) => {
    while (tr.cells.length > now.nodes.length + 1) tr.lastChild.remove();
    while (tr.cells.length < now.nodes.length + 1) tr.append(make("td", {}, make("span"), make("span", { class: "under" })));
    now.nodes.forEach((to, at) => cell(tr.cells[at + 1], from, to));
  });
}
