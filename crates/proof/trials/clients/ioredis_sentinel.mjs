// ioredis in Sentinel mode, unmodified, over a change of leader. The ports are those of the nodes,
// which reply as Sentinels would. Prints `ready` when the leader may be killed.
import assert from "node:assert";
import Redis from "ioredis";

const sentinels = process.argv.slice(2).map((port) => ({ host: "127.0.0.1", port: Number(port) }));
const options = { sentinels, name: "mymaster", maxRetriesPerRequest: 1 };
const master = new Redis(options);
const replica = new Redis({ ...options, role: "slave" });
let acknowledged = 0;
let connections = 0;
master.on("ready", () => connections++);
for (const client of [master, replica]) client.on("error", () => {});

async function write(until) {
  const deadline = Date.now() + 30_000;
  while (!until()) {
    assert(Date.now() < deadline, "the new leader is not found");
    try {
      await master.incr("js:sentinel");
      acknowledged++;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

await write(() => acknowledged >= 100);
console.log("ready");
await write(() => connections > 1);
const before = acknowledged;
await write(() => acknowledged >= before + 100);
assert(Number(await replica.get("js:sentinel")) >= acknowledged);
assert.equal((await master.role())[0], "master");
console.log(`ioredis by Sentinel: ${acknowledged} writes, none lost, over a change of leader`);
master.disconnect();
replica.disconnect();
