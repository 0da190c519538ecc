// rate-limiter-flexible, unmodified, with ioredis in Sentinel mode, over a change of leader. Prints
// `ready` when the leader may be killed.
import assert from "node:assert";
import Redis from "ioredis";
import { RateLimiterQueue, RateLimiterRedis } from "rate-limiter-flexible";

const ports = process.argv.slice(2).map(Number);
const sentinels = ports.map((port) => ({ host: "127.0.0.1", port }));
const nodes = ports.map((port) => new Redis(port));
const master = new Redis({ sentinels, name: "mymaster", maxRetriesPerRequest: 1 });
const all = [...nodes, master];
for (const client of all) client.on("error", () => {});
const limiter = (storeClient, options) => new RateLimiterRedis({ storeClient, keyPrefix: "limit", points: 5, duration: 1, ...options });
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// At most five requests per second are allowed, over all nodes together.
const each = nodes.map((node) => limiter(node));
const asked = await Promise.allSettled(Array.from({ length: 30 }, (_, n) => each[n % 3].consume("ip")));
assert.equal(asked.filter(({ status }) => status === "fulfilled").length, 5);
const refusal = asked.find(({ status }) => status === "rejected").reason;
assert(refusal.msBeforeNext > 0 && refusal.msBeforeNext <= 1100 && refusal.remainingPoints === 0, JSON.stringify(refusal));
await pause(1100);
assert.equal((await each[1].consume("ip", 2)).remainingPoints, 3);
assert.equal((await each[2].penalty("ip", 1)).consumedPoints, 3);
assert.equal((await each[0].reward("ip", 2)).consumedPoints, 1);
assert.equal((await each[1].get("ip")).consumedPoints, 1);
assert(await each[2].delete("ip"));
assert.equal(await each[0].get("ip"), null);
await each[0].block("ip", 30);
await assert.rejects(each[1].consume("ip"), ({ msBeforeNext }) => msBeforeNext > 20_000);
// The first request above the limit starts a block.
const strict = nodes.map((node) => limiter(node, { keyPrefix: "strict", points: 1, blockDuration: 30 }));
await strict[0].consume("ip");
await assert.rejects(strict[1].consume("ip"), ({ msBeforeNext }) => msBeforeNext > 20_000);
const queue = new RateLimiterQueue(limiter(nodes[2], { keyPrefix: "queue", points: 2 }), { maxQueueSize: 10 });
const begun = Date.now();
await Promise.all([1, 2, 3, 4].map(() => queue.removeTokens(1)));
assert(Date.now() - begun > 500, "two of them wait");

const budget = limiter(master, { keyPrefix: "budget", points: 400, duration: 600 });
let [allowed, unknown, refused] = [0, 0, 0];
async function consume(count) {
  for (let n = 0; n < count; n += 1) {
    try {
      await budget.consume("all");
      allowed += 1;
    } catch (error) {
      if (error instanceof Error) {
        unknown += 1;
        await pause(20);
      } else {
        refused += 1;
      }
    }
  }
}
await consume(100);
console.log("ready");
let connections = 0;
master.on("ready", () => (connections += 1));
const deadline = Date.now() + 30_000;
while (connections === 0) {
  assert(Date.now() < deadline, "the new leader is not found");
  await consume(1);
  await pause(10);
}
while (refused < 20) {
  assert(Date.now() < deadline, "there is no end to what is allowed");
  await consume(20);
}
// ioredis resends a command that got no reply, so one command may count twice.
assert(allowed <= 400 && allowed + unknown >= 399, `${allowed} allowed, ${unknown} unknown`);
console.log(`rate-limiter-flexible: ${allowed} of 400 allowed, ${unknown} without an answer, over a change of leader`);
all.forEach((client) => client.disconnect());
