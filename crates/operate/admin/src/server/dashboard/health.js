// Health: whether there is a quorum, how many failures it tolerates, and what to do. Shown as the banner and the pill
// next to the title.
import { $, each, make, mark, text } from "./elements.js";
import { span } from "./units.js";

// Returns the weight that an election and a write need under the current quorum rule.
function rule(text, all) {
  const flexible = /^flexible:(\d+),(\d+)$/.exec(text ?? "");
  if (flexible) return { elect: Number(flexible[1]), write: Number(flexible[2]) };
  const majority = Math.floor(all / 2) + 1;
  return { elect: majority, write: majority };
}

// Finds the members able to vote: those that the leader reaches or, without a leader, those that answer this page's
// node.
export function standing(now) {
  const voters = now.members.filter(member => member.weight > 0);
  const lives = member => {
    const node = now.nodes.find(node => node.node === member.node);
    if (node && !node.isStale && node.view.role === "learner") return false;
    if (member.node === now.leader) return true;
    return now.leading ? member.connected && !(node?.is_starting) : Boolean(node && !node.isStale);
  };
  const weigh = members => members.reduce((sum, member) => sum + member.weight, 0);
  const alive = voters.filter(lives), gone = voters.filter(member => !lives(member));
  const quorum = rule(now.teller?.view?.quorum, weigh(voters));
  const need = Math.max(quorum.elect, quorum.write);
  const has = weigh(alive), worst = has - Math.max(0, ...alive.map(member => member.weight));
  const level = !voters.length ? "unknown" : has < quorum.write || (now.leader === null && has < quorum.elect) ? "lost"
    : worst >= need ? "spare" : gone.length ? "edge" : "small";
  return { voters, alive, gone, need, has, level };
}

const named = members => {
  const ids = members.map(member => member.node);
  return (ids.length > 1 ? "nodes " : "node ") + (ids.length > 1 ? `${ids.slice(0, -1).join(", ")} and ${ids.at(-1)}` : ids[0]);
};

function banners(now, lost, sinceMs) {
  const all = [];
  if (lost !== null) {
    const age = sinceMs === null ? "" : ` Everything below is ${span(sinceMs / 1000)} old.`;
    all.push({ key: "page", is: "bad", title: `No connection to the node: ${lost || "the connection ended"}.`,
      what: `${age} Retrying every second. If the node is down, open the page of another node.` });
  }
  if (!now) return all;
  const { level, gone, alive, voters, need, has } = standing(now);
  const reasons = gone.map(member => now.nodes.find(node => node.node === member.node)?.trouble).filter(Boolean).join("; ");
  const why = reasons ? ` (${reasons})` : "";
  const others = gone.length ? named(gone) : "the others";
  if (level === "lost") all.push({ key: "quorum", is: "bad", title: `Quorum lost: ${has} of ${need} needed votes available. Nothing is written.`,
    what: `Restart ${others}${why}. No acknowledged write is lost as long as their folders exist. Only if they are permanently lost, use quorate recover: docs/operate/lost-majority.md.` });
  else if (level === "edge") all.push({ key: "quorum", is: "wait", title: `One failure away from quorum loss: ${alive.length} of ${voters.length} voters are up.`,
    what: `Restart ${others}${why}, or replace it: quorate member replace. Stop no other node until then.` });
  else if (level === "small") all.push({ key: "quorum", is: "note", title: voters.length === 1 ? "A cluster of one tolerates no failure." : `These ${voters.length} voters tolerate no failure.`,
    what: "Add nodes: three voters tolerate one failure, five tolerate two." });
  if (level !== "lost" && now.leader === null) all.push({ key: "leader", is: "wait", title: "There is no leader at the moment.", what: "Writes wait. An election usually takes less than a second; if this persists, check the network between the nodes." });
  for (const node of now.nodes) {
    const error = !node.isStale && node.view.error;
    if (error) all.push({ key: `error-${node.node}`, is: "bad", title: `Node ${node.node}: ${error}`, what: "docs/operate.md tells you what to do about each error." });
  }
  return all;
}

function pill(now, lost) {
  if (lost !== null) return ["bad", "no answer: stale"];
  if (!now) return ["wait", "connecting"];
  const { level } = standing(now);
  if (level === "lost") return ["bad", "no quorum"];
  if (now.leader === null) return ["wait", "no leader"];
  if (level === "edge") return ["wait", "no spare"];
  return ["good", "serves"];
}

// `lost` is the reason why there is no newer document, or null; `sinceMs` is the age of the last one.
export function show(now, lost, sinceMs) {
  each($("banners"), banners(now, lost, sinceMs), banner => banner.key,
    () => make("p", { class: "banner" }, make("b"), make("span")),
    (element, banner) => { mark(element, "is", banner.is); text(element.children[0], banner.title); text(element.children[1], banner.what); });
  const [is, words] = pill(now, lost);
  mark($("status"), "is", is);
  text($("status"), words);
  document.body.classList.toggle("stale", lost !== null);
}
