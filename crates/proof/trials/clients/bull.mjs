// Bull, unmodified, with ioredis in Sentinel mode, over a change of leader: jobs that run
// immediately, delayed, repeatedly, or again after a failure. Prints `ready` when the leader may be
// killed.
import assert from "node:assert";
import Bull from "bull";
import Redis from "ioredis";

const sentinels = process.argv.slice(2).map((port) => ({ host: "127.0.0.1", port: Number(port) }));
const clients = [];
function createClient() {
  const client = new Redis({ sentinels, name: "mymaster", maxRetriesPerRequest: null, enableReadyCheck: false });
  client.on("error", () => {});
  clients.push(client);
  return client;
}
const settings = { lockDuration: 3000, stalledInterval: 1000, guardInterval: 200, maxStalledCount: 5, retryProcessDelay: 200 };
const queue = new Bull("mail", { createClient, settings });
queue.on("error", () => {});

const done = new Map();
const tries = new Map();
const count = (map, key) => map.set(key, (map.get(key) ?? 0) + 1);
queue.process("*", 4, async (job) => {
  count(tries, job.data.key);
  if (tries.get(job.data.key) <= (job.data.failures ?? 0)) throw new Error("not yet");
  await job.progress(50);
  count(done, job.data.key);
  return job.data.key.length;
});

async function until(what, condition) {
  const deadline = Date.now() + 60_000;
  while (!(await condition())) {
    assert(Date.now() < deadline, `${what}: ${JSON.stringify(await queue.getJobCounts())}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Adds a job, again if the answer was lost: its name makes the second addition do nothing. */
async function add(key, data = {}, options = {}) {
  await until(`adding ${key}`, () => queue.add("one", { key, ...data }, { jobId: key, ...options }).then(() => true, () => false));
}

async function round(name) {
  const keys = [];
  const begun = Date.now();
  const next = (kind) => keys[keys.push(`${name}:${kind}:${keys.length}`) - 1];
  for (let n = 0; n < 30; n += 1) await add(next("plain"), {}, { priority: n % 3 });
  for (let n = 0; n < 10; n += 1) await add(next("late"), {}, { delay: 300 });
  for (let n = 0; n < 5; n += 1) await add(next("again"), { failures: 2 }, { attempts: 4, backoff: { type: "exponential", delay: 50 } });
  return { keys, late: begun + 300, begun };
}

async function finished({ keys }) {
  await until("processing", () => keys.every((key) => done.has(key)));
  await until("states", async () => {
    const jobs = await Promise.all(keys.map((key) => queue.getJob(key)));
    return (await Promise.all(jobs.map((job) => job.isCompleted()))).every(Boolean);
  });
}

// Without faults, each job of every kind is processed exactly once.
const first = await round("first");
await finished(first);
assert(first.keys.every((key) => done.get(key) === 1), "a job was processed twice");
assert(first.keys.filter((key) => key.includes("again")).every((key) => tries.get(key) === 3));
// A job whose attempts have all failed is retried explicitly.
await add("failing", { failures: 1 });
await until("failure", async () => (await queue.getFailedCount()) === 1);
const failed = await queue.getJob("failing");
assert.equal(failed.failedReason, "not yet");
await failed.retry();
assert.equal(await (await queue.getJob("failing")).finished(), "failing".length, "the result of another client's job");
await queue.add("every", { key: "every" }, { repeat: { every: 100 }, removeOnComplete: true });
await until("repetition", () => done.get("every") >= 3);
await queue.pause();
await add("held");
assert((await queue.getPausedCount()) >= 1); // The repeated job may be due, too.
await queue.resume();
await until("resumption", () => done.has("held"));

console.log("ready");
const begin = Date.now();
const rounds = [];
// This lasts as long as the killed node is down, and a while longer.
while (Date.now() < begin + 4000) rounds.push(await round(`kill:${rounds.length}`));
for (const one of rounds) await finished(one);
const repeated = done.get("every");
await until("repetition after the kill", () => done.get("every") > repeated + 2);
const { key } = (await queue.getRepeatableJobs())[0];
await queue.removeRepeatableByKey(key);
const jobs = rounds.flatMap((one) => one.keys);
let counts;
await until("the rest", async () => {
  counts = await queue.getJobCounts();
  return counts.failed + counts.waiting + counts.active === 0;
});
assert.equal(counts.completed, first.keys.length + jobs.length + 2);
const twice = jobs.filter((one) => done.get(one) > 1).length;
console.log(`Bull: ${counts.completed} jobs, none lost, over a change of leader; ${twice} processed again`);
await queue.obliterate({ force: true });
clients.forEach((client) => client.disconnect());
process.exit(); // Bull's timers would keep the process alive.
