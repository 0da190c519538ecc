// node-redis, unmodified, against the ports given as arguments.
import assert from "node:assert";
import { createClient, WatchError } from "redis";

const ports = process.argv.slice(2).map(Number);
const connect = async (port) => {
  const client = createClient({ socket: { host: "127.0.0.1", port } });
  await client.connect();
  return client;
};
const nodes = await Promise.all(ports.map(connect));

for (const [index, node] of nodes.entries()) {
  const key = `node:${index}`;
  assert.equal(await node.set(key, "1"), "OK");
  for (const other of nodes) assert.equal(await other.get(key), "1");
  assert.equal(await node.incrBy(key, 41), 42);
  assert.deepEqual(await node.mGet([key, "node:none"]), ["42", null]);
  assert.deepEqual(await node.multi().set(key, "5").incr(key).exec(), ["OK", 6]);
  await node.watch(key);
  await nodes[(index + 1) % nodes.length].set(key, "7");
  await assert.rejects(node.multi().incr(key).exec(), WatchError);
  await assert.rejects(node.sendCommand(["LOLWUT"]), /unknown command/);
  const entry = await node.xAdd("node:log", "*", { a: "1" });
  assert.equal((await node.xRange("node:log", "-", "+"))[0].id, entry);
  assert.equal(await node.del("node:log"), 1);
  assert.equal(await node.del(key), 1);
}
// Pipelined: replies arrive in the order of the commands.
const numbers = Array.from({ length: 1000 }, (_, number) => number);
await nodes[0].del("node:counter");
const replies = await Promise.all(numbers.map(() => nodes[0].incr("node:counter")));
assert.deepEqual(replies, numbers.map((number) => number + 1));
await Promise.all(nodes.map((node) => node.quit()));
console.log(`node-redis: ${nodes.length} nodes`);
