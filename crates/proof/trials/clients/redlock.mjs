// node-redlock, unmodified, with ioredis, against the ports given as arguments. A cluster counts as
// one lock server, since its nodes are not independent.
import assert from "node:assert";
import Redis from "ioredis";
import redlock from "redlock";

const Redlock = redlock.default ?? redlock;
const ports = process.argv.slice(2).map(Number);
const nodes = ports.map((port) => new Redis(port));
const locks = nodes.map((node) => new Redlock([node], { retryCount: 0 }));
const patient = nodes.map((node) => new Redlock([node], { retryCount: -1, retryDelay: 5, retryJitter: 5 }));

for (const [index, lock] of locks.entries()) {
  const rival = locks[(index + 1) % locks.length];
  const names = [`redlock:${index}:a`, `redlock:${index}:b`];
  const held = await lock.acquire(names, 20000);
  await assert.rejects(rival.acquire([names[1]], 20000), "it is taken, on every node");
  const longer = await held.extend(60000);
  const left = await nodes[0].pttl(names[0]);
  assert(left > 40000 && left <= 60000, `${left} ms`);
  await longer.release();
  assert.equal(await nodes[index].exists(...names), 0);
  await assert.rejects(longer.release(), "it is another's, or nobody's");
  await rival.acquire([names[1]], 50);
}
// No increment is lost, regardless of the nodes that the clients use.
let count = 0;
await Promise.all(
  patient.map(async (lock) => {
    for (let round = 0; round < 20; round += 1) {
      await lock.using(["redlock:mutex"], 20000, async () => {
        const seen = count;
        await new Promise((resolve) => setTimeout(resolve, 1));
        count = seen + 1;
      });
    }
  }),
);
assert.equal(count, 20 * patient.length);
await Promise.all(nodes.map((node) => node.quit()));
console.log(`node-redlock: ${nodes.length} nodes`);
