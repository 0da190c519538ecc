// State of the cluster from one document, its leader and members, and rates from two documents.
import { merge, since, spread } from "./latency.js";

const STALE_MS = 3500;

export function read(document, before) {
  const nodes = document.nodes.map(node => ({ ...node, isStale: node.age_ms === null || node.age_ms > STALE_MS || node.is_starting }));
  const fresh = nodes.filter(node => !node.isStale);
  const higher = (a, b) => a.era - b.era || a.round - b.round || a.node - b.node;
  // The leader named by the highest ballot; a deposed leader may not know it yet.
  const claims = fresh.filter(node => node.view.leader !== null).sort((a, b) => higher(b.view.ballot, a.view.ballot));
  const leader = claims[0]?.view.leader ?? null;
  const leading = fresh.find(node => node.node === leader) ?? null;
  const here = nodes.find(node => node.node === document.here) ?? nodes[0];
  // The node that knows most about its peers.
  const teller = leading ?? fresh.find(node => node.node === document.here) ?? fresh[0] ?? here;
  const members = teller?.view?.members ?? [];
  const now = { atMs: document.at_ms, here: document.here, watchers: document.watchers, nodes, leader, leading, teller, members, tuning: document.tuning };
  now.rates = rates(now, before);
  return now;
}

const heardMs = (now, node) => now.atMs - node.age_ms;

function rates(now, before) {
  const none = { commands: null, latencyUs: null, p99Us: null };
  if (!before) return none;
  let commands = null, known = false;
  const latencies = [];
  for (const node of now.nodes) {
    const old = before.nodes.find(other => other.node === node.node);
    if (node.isStale || !old?.view || old.isStale) continue;
    const [was, is] = [old.view.traffic, node.view.traffic];
    const seconds = (heardMs(now, node) - heardMs(before, old)) / 1000;
    // Counters that decreased belong to a new process.
    const added = since(is.latencies, was.latencies);
    if (is.applied < was.applied || added === null || seconds < 0.2) continue;
    known = true;
    latencies.push(added);
    if (node.node === now.leader) commands = (is.applied - was.applied) / seconds;
  }
  // A node whose answer was late is counted with the next document.
  const carried = now.leader === null ? 0 : before.rates.commands;
  if (!known) return { ...none, commands: now.leading ? carried : null };
  return { commands: commands ?? carried, ...spread(merge(latencies)) };
}
