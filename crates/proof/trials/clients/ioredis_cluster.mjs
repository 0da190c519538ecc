// ioredis in cluster mode, unmodified, over a change of leader. The ports are those of the nodes,
// which emulate a cluster. Prints `ready` when the leader may be killed.
import assert from "node:assert";
import Redis from "ioredis";

const nodes = process.argv.slice(2).map((port) => ({ host: "127.0.0.1", port: Number(port) }));
const cluster = new Redis.Cluster(nodes);
cluster.on("error", () => {});
const keys = Array.from({ length: 20 }, (_, number) => `js:cluster:${number}`);
let acknowledged = 0;

async function write(milliseconds) {
  const end = Date.now() + milliseconds;
  while (Date.now() < end) {
    for (const key of keys) {
      try {
        await cluster.incr(key);
        acknowledged++;
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
  }
}

await write(500);
assert(cluster.nodes("master").length > 1, "its connections are not spread");
console.log("ready");
await write(3000);
const before = acknowledged;
await write(500);
assert(acknowledged >= before + keys.length, "it does not go on");
let total = 0;
for (const key of keys) total += Number(await cluster.get(key));
assert(total >= acknowledged);
console.log(`ioredis in cluster mode: ${acknowledged} writes, none lost, over a change of leader`);
cluster.disconnect();
