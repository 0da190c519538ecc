// Members: role, lag, plane and disk, and the actions for each.
import { $, attribute, each, lines, make, mark, row, text } from "./elements.js";
import { ballot, bytes, count, micros, span } from "./units.js";

function head(th, node, now) {
  const [name, under] = th.children;
  text(name, `${node.node}${node.node === now.here ? " (this page)" : ""}`);
  const client = now.members.find(member => member.node === node.node)?.client;
  text(under, client ?? "");
}

function age(node) {
  if (!node.isStale || node.is_starting) return "";
  return node.age_ms === null ? "never seen" : `stale, ${span(node.age_ms / 1000)} old`;
}

function role(td, node, member) {
  const is = node.is_starting ? "starting" : node.isStale ? "gone" : node.view.removed ? "removed" : node.view.role;
  mark(td.children[0], "is", is);
  text(td.children[0], is === "gone" ? "no answer" : is);
  const weight = member && member.weight > 1 ? `, weight ${member.weight}` : "";
  text(td.children[1], node.view ? `ballot ${ballot(node.view.ballot)}${weight}` : "");
  text(td.children[2], age(node));
}

function plane(member) {
  if (!member?.plane) return [member?.connected === false ? "not connected" : "–", ""];
  const { way, frames, rtt_us: rtt, why } = member.plane;
  return [way + (rtt === null ? "" : `, ${micros(rtt)}`), [frames && frames !== "packet" ? `by ${frames}` : "", why ?? ""].filter(Boolean).join("; ")];
}

// Describes the scrub in progress, or the last one.
function scrubbed(scrub) {
  if (!scrub) return "";
  const found = scrub.found.length + scrub.more, damaged = found ? `, ${count(found)} damaged` : "";
  if (scrub.reading !== null) return `scrub ${scrub.bytes_all ? Math.min(100, Math.floor(100 * scrub.bytes / scrub.bytes_all)) : 0} %${damaged}`;
  return scrub.ended_unix_ms === null ? damaged.slice(2) : `scrubbed ${new Date(scrub.ended_unix_ms).toISOString().slice(0, 10)}${damaged}`;
}

const two = (td, [first, second]) => { text(td.children[0], first); text(td.children[1], second); };

const ACTS = [["lead", "Make leader"], ["drain", "Drain"], ["snapshot", "Snapshot"], ["remove", "Remove"]];

export function show(now, act) {
  const table = $("t-members");
  each(table.tBodies[0], now.nodes, node => node.node, node => {
    const tr = row(table, make("span"));
    tr.cells[0].append(make("span", { class: "under" }));
    tr.cells[1].append(make("span", { class: "role" }), make("span", { class: "under" }), make("span", { class: "age" }));
    tr.cells[1].classList.add("keep");
    for (const at of [2, 3, 4, 5, 6, 7]) tr.cells[at].append(make("span"), make("span", { class: "under" }));
    const acts = make("div", { class: "acts", role: "group", "aria-label": `Node ${node.node}` });
    for (const [name, words] of ACTS) {
      const button = make("button", { type: "button", "data-act": name, "aria-label": `${words}: node ${node.node}` }, words);
      if (name === "remove") button.dataset.kind = "danger";
      button.addEventListener("click", () => { if (button.getAttribute("aria-disabled") !== "true") act(name, node.node); });
      acts.append(button);
    }
    tr.cells[8].append(acts);
    tr.cells[8].classList.add("all", "keep");
    return tr;
  }, (tr, node) => {
    const member = now.members.find(member => member.node === node.node), view = node.view;
    tr.classList.toggle("stale", node.isStale);
    head(tr.cells[0], node, now);
    role(tr.cells[1], node, member);
    const lag = now.leading?.view.members.find(member => member.node === node.node)?.lag ?? null;
    two(tr.cells[2], [node.node === now.leader ? "–" : lag === null ? "unknown" : lag === 0 ? "caught up" : lag === 1 ? "1 slot" : `${count(lag)} slots`, ""]);
    two(tr.cells[3], node.node === now.teller?.node ? ["–", ""] : plane(member));
    const disk = view?.disk;
    two(tr.cells[4], [disk?.free_bytes == null ? "–" : bytes(disk.free_bytes), ""]);
    two(tr.cells[5], [disk?.log_bytes_per_second == null ? "–" : `${bytes(disk.log_bytes_per_second)}/s`, view ? `log ${bytes(view.log_bytes)}` : ""]);
    two(tr.cells[6], [disk?.full_in_seconds == null ? "–" : span(disk.full_in_seconds), scrubbed(view?.scrub)]);
    const streams = view?.streams;
    two(tr.cells[7], streams?.count ? [`${streams.count}, ${streams.open} open`, `${bytes(streams.bytes)}${streams.missing_bytes ? `, lacks ${bytes(streams.missing_bytes)}` : ""}`] : ["none", ""]);
    for (const button of tr.cells[8].querySelectorAll("button")) {
      const off = document.body.classList.contains("stale")
        || (button.dataset.act === "lead" && (node.isStale || node.node === now.leader || now.leader === null || !(member?.weight > 0)))
        || (button.dataset.act === "drain" && (node.isStale || now.leader === null))
        || (button.dataset.act === "snapshot" && node.isStale)
        || (button.dataset.act === "remove" && now.leader === null);
      attribute(button, "aria-disabled", off);
    }
  });
  const said = [];
  for (const node of now.nodes) {
    if (node.trouble) said.push({ text: `node ${node.node}: ${node.trouble}`, is: node.is_starting ? "wait" : "bad" });
    if (!node.isStale) for (const notice of node.view.notices) said.push({ text: `node ${node.node}: ${notice}`, is: "wait" });
    if (!node.isStale && node.view.device) said.push({ text: `node ${node.node}: device ${node.view.device.name}, ${node.view.device.used ? "used" : `not used: ${node.view.device.why ?? "idle"}`}` });
  }
  lines($("notes"), said);
  const plan = now.teller?.view?.plan ?? null;
  $("plan").hidden = $("cancel").hidden = plan === null;
  text($("plan"), plan ? `Plan ${plan.id}: ${plan.what}${plan.waits ? `; waits: ${plan.waits}` : ""}` : "");
  for (const id of ["add", "backup", "cancel"]) attribute($(id), "aria-disabled", document.body.classList.contains("stale") || (id !== "backup" && now.leader === null));
}
