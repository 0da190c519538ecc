// Joins the nodes' histories second by second, by their clocks.
const SECONDS_MAX = 300;

// Returns the seconds in order, each as [second, samples, leader]. A sample counts for every second that ended
// within its span. A node's spans follow each other, so a late sample leaves no second empty.
export function align(histories) {
  const seconds = new Map();
  for (const { node, samples } of histories) {
    for (const sample of samples) {
      const last = Math.floor(sample.at_ms / 1000);
      const first = Math.max(last - SECONDS_MAX, Math.floor((sample.at_ms - sample.span_ms) / 1000)) + 1;
      for (let second = first; second <= last; second++) {
        if (!seconds.has(second)) seconds.set(second, []);
        seconds.get(second).push({ node, ...sample });
      }
    }
  }
  let leader = null;
  return [...seconds].sort(([a], [b]) => a - b).map(([second, said]) => {
    // Only a node itself knows that it began to lead; the others learn of it later.
    const leading = said.find(sample => sample.node === sample.leader);
    if (leading) leader = leading.node;
    else if (said.every(sample => sample.leader === null)) leader = null;
    return [second, said, leader];
  });
}
