// Settings that the leader chose, with its reasons, and the transfers to nodes that are catching up.
import { $, each, lines, make, text } from "./elements.js";
import { bytes, count, micros, span } from "./units.js";

const DOING = { reading_log: "reads its log", reading_votes: "reads its votes", receiving_snapshot: "receives a snapshot", repairing: "repairs its log", replaying: "replays its log", catching_up: "catches up" };

export function show(now) {
  const tuning = now.tuning;
  text($("tuning"), tuning ? `${bytes(tuning.chosen.batch_bytes)} × ${tuning.chosen.window}` : "not known");
  const measured = tuning?.measured ? ` Measured: ${count(Math.round(tuning.measured.throughput))} commands/s at ${micros(tuning.measured.latency_us)}.` : "";
  const limit = tuning?.bottleneck ? ` The limit is ${tuning.bottleneck}.` : "";
  text($("reason"), tuning ? `${tuning.held ? "Held by an operator. " : ""}${tuning.reason}${measured}${limit}` : "Not reported by the leader.");
  const view = now.leading?.view;
  const ring = view?.ring.length ? [{ text: `votes pass along a ring: ${view.ring.join(" → ")}` }] : [];
  lines($("choices"), [...ring, ...(view?.choices ?? []).map(choice => ({ text: choice }))]);
}

export function transfers(now) {
  const under = now.nodes.map(node => ({ node: node.node, progress: node.progress ?? (node.isStale ? null : node.view?.progress) })).filter(item => item.progress);
  each($("transfers"), under.length ? under : [{ node: 0 }], item => item.node,
    item => item.progress ? make("li", {}, make("span"), make("progress", { max: 100, "aria-label": `Node ${item.node}` })) : make("li", {}, "None: every node that answers is caught up."),
    (li, { node, progress }) => {
      if (!progress) return;
      const amount = progress.unit === "bytes" ? bytes : count;
      const rate = progress.per_second === null ? "" : `, ${amount(progress.per_second)}${progress.unit === "bytes" ? "" : " slots"}/s`;
      const left = progress.seconds_left === null ? "" : `, about ${span(progress.seconds_left)} left`;
      text(li.children[0], `Node ${node} ${DOING[progress.doing] ?? progress.doing}: ${amount(progress.at)} of ${amount(progress.to)}, ${progress.percent} %${rate}${left}`);
      li.children[1].value = progress.percent;
    });
}
