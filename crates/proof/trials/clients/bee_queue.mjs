// Bee-Queue, unmodified, with ioredis in Sentinel mode, over a change of leader: jobs that are processed at once, delayed,
// and tried again. Says `ready` when the leader may be killed.
import assert from "node:assert";
import Queue from "bee-queue";
import Client from "ioredis";

// Bee-Queue recognises a client by the name of its class, which ioredis 5 hides.
class Redis extends Client {}

const sentinels = process.argv.slice(2).map((port) => ({ host: "127.0.0.1", port: Number(port) }));
const redis = new Redis({ sentinels, name: "mymaster", maxRetriesPerRequest: null, enableReadyCheck: false });
redis.on("error", () => {});
const settings = { redis, activateDelayedJobs: true, stallInterval: 1000, nearTermWindow: 60_000, autoConnect: true };
const producer = new Queue("mail", { ...settings, isWorker: false });
const worker = new Queue("mail", { ...settings, getEvents: false });
for (const queue of [producer, worker]) queue.on("error", () => {});

const done = new Map();
const tries = new Map();
const count = (map, key) => map.set(key, (map.get(key) ?? 0) + 1);
worker.process(5, async ({ data }) => {
  count(tries, data.key);
  if (tries.get(data.key) <= data.failures) throw new Error("not yet");
  count(done, data.key);
  return data.key.length;
});

/** Numbers of jobs. ioredis answers a transaction with pairs, of which Bee-Queue takes no notice. */
async function health() {
  const counts = Object.entries(await producer.checkHealth());
  return Object.fromEntries(counts.map(([name, count]) => [name, Array.isArray(count) ? count[1] : count]));
}

async function until(what, condition) {
  const deadline = Date.now() + 60_000;
  while (!(await condition())) {
    assert(Date.now() < deadline, `${what}: ${JSON.stringify(await health())}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Adds a job, again if the answer was lost: its name makes the second addition do nothing. */
async function add(key, set = (job) => job, failures = 0) {
  const job = () => set(producer.createJob({ key, failures }).setId(key));
  await until(`adding ${key}`, () => job().save().then(() => true, () => false));
}

async function round(name) {
  const keys = [];
  const next = (kind) => keys[keys.push(`${name}:${kind}:${keys.length}`) - 1];
  for (let n = 0; n < 30; n += 1) await add(next("plain"));
  for (let n = 0; n < 10; n += 1) await add(next("late"), (job) => job.delayUntil(Date.now() + 300));
  for (let n = 0; n < 5; n += 1) await add(next("again"), (job) => job.retries(3).backoff("fixed", 30), 2);
  return keys;
}

const finished = (keys) => until("processing", () => keys.every((key) => done.has(key)));

const first = await round("first");
await finished(first);
assert(first.every((key) => done.get(key) === 1), "a job was processed twice");
assert(first.filter((key) => key.includes("again")).every((key) => tries.get(key) === 3));
const result = new Promise((resolve) => producer.once("job succeeded", (id, length) => resolve([id, length])));
await add("told");
assert.deepEqual(await result, ["told", 4], "a message on a channel");
await add("failing", undefined, 1000);
await until("failure", async () => (await health()).failed === 1);
await producer.removeJob("failing");
assert.equal((await health()).failed, 0);

console.log("ready");
const begin = Date.now();
const rounds = [];
// As long as the killed node is away, and then for a while.
while (Date.now() < begin + 4000) rounds.push(...(await round(`kill:${rounds.length}`)));
await finished(rounds);
await until("states", async () => {
  const { waiting, active, delayed } = await health();
  return waiting + active + delayed === 0;
});
const twice = rounds.filter((key) => done.get(key) > 1).length;
console.log(`Bee-Queue: ${done.size} jobs, none lost, over a change of leader; ${twice} processed again`);
await Promise.all([producer.close(), worker.close()]);
redis.disconnect();
process.exit();
