// Shows each document that arrives, and the age of the last one when none arrives.
import { $, text } from "./elements.js";
import { listen, remembered } from "./events.js";
import { read } from "./cluster.js";
import { count } from "./units.js";
import * as actions from "./actions.js";
import * as curves from "./curves.js";
import * as health from "./health.js";
import * as links from "./links.js";
import * as members from "./members.js";
import * as positions from "./positions.js";
import * as reigns from "./reigns.js";
import * as tuning from "./tuning.js";

let now = null, heardAt = null, lost = null;

function show(document_) {
  now = read(document_, now);
  [heardAt, lost] = [Date.now(), null];
  curves.take(now);
  draw();
}

function draw() {
  health.show(now, lost, heardAt === null ? null : Date.now() - heardAt);
  if (!now) return;
  members.show(now, (name, node) => actions.open(name, node, () => now));
  links.show(now);
  curves.show();
  positions.show(now);
  reigns.show(now);
  tuning.show(now);
  tuning.transfers(now);
  const view = now.teller?.view, { alive, voters } = health.standing(now);
  text($("here"), `at node ${now.here}`);
  if (view) text($("cluster"), `Cluster ${view.cluster}, ${view.durability}, store ${view.store}`);
  text($("f-leader"), now.leader === null ? "none" : `node ${now.leader}`);
  text($("f-voters"), voters.length ? `${alive.length} of ${voters.length}` : "–");
  text($("f-era"), view ? count(view.era) : "–");
  text($("foot"), view ? `Version ${view.version}. Updated by node ${now.here} once a second for ${now.watchers === 1 ? "this page" : `${now.watchers} open pages`}; paused while no page is open.` : "");
  document.title = `${$("status").textContent}: Quorate at node ${now.here}`;
}

for (const name of ["add", "backup", "cancel"]) {
  $(name).addEventListener("click", () => { if ($(name).getAttribute("aria-disabled") !== "true" && now) actions.open(name, null, () => now); });
}
addEventListener("resize", draw);
setInterval(() => { if (lost !== null) draw(); }, 1000);
remembered().then(histories => { curves.remember(histories); draw(); }, () => {});
listen(show, why => { lost = why; draw(); });
