// BullMQ, unmodified, with ioredis in Sentinel mode, over a change of leader: jobs that run immediately, delayed, by
// priority, in flows, on a schedule, or again after a failure. Their events are a stream. Prints `ready` when the leader may
// be killed.
import assert from "node:assert";
import { FlowProducer, Queue, QueueEvents, Worker } from "bullmq";

const sentinels = process.argv.slice(2).map((port) => ({ host: "127.0.0.1", port: Number(port) }));
const connection = { sentinels, name: "mymaster", maxRetriesPerRequest: null };
const quiet = (one) => one.on("error", () => {}) && one;
const queue = quiet(new Queue("mail", { connection }));
const events = quiet(new QueueEvents("mail", { connection }));
const flows = quiet(new FlowProducer({ connection }));

const done = new Map();
const tries = new Map();
const told = new Set();
const count = (map, key) => map.set(key, (map.get(key) ?? 0) + 1);
async function work(job) {
  count(tries, job.data.key);
  if (tries.get(job.data.key) <= (job.data.failures ?? 0)) throw new Error("not yet");
  await job.updateProgress(50);
  if (job.data.parent) assert.equal(Object.keys(await job.getChildrenValues()).length, 2);
  count(done, job.data.key);
  return job.data.key.length;
}
const worker = quiet(new Worker("mail", work, { connection, concurrency: 4, lockDuration: 3000, stalledInterval: 1000, maxStalledCount: 5 }));
events.on("completed", ({ jobId }) => told.add(jobId));

async function until(what, condition) {
  const deadline = Date.now() + 60_000;
  while (!(await condition())) {
    assert(Date.now() < deadline, `${what}: ${JSON.stringify(await queue.getJobCounts())}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Repeats an addition whose answer was lost: the job's id makes the second one do nothing. */
const insist = (what, attempt) => until(what, () => attempt().then(() => true, () => false));

async function round(name) {
  const keys = [];
  const next = (kind) => keys[keys.push(`${name}-${kind}-${keys.length}`) - 1];
  const add = (key, options, data) => insist(key, () => queue.add("one", { key, ...data }, { jobId: key, ...options }));
  for (let n = 0; n < 20; n += 1) await add(next("plain"), {});
  for (let n = 0; n < 10; n += 1) await add(next("urgent"), { priority: 1 + (n % 3) });
  for (let n = 0; n < 10; n += 1) await add(next("late"), { delay: 300 });
  for (let n = 0; n < 5; n += 1) await add(next("again"), { attempts: 4, backoff: { type: "exponential", delay: 50 } }, { failures: 2 });
  const [parent, ...children] = ["parent", "child", "child"].map(next);
  const job = (key, data) => ({ name: "one", queueName: "mail", data: { key, ...data }, opts: { jobId: key } });
  await insist("flow", () => flows.add({ ...job(parent, { parent: true }), children: children.map((key) => job(key)) }));
  return keys;
}

async function finished(keys) {
  await until("processing", () => keys.every((key) => done.has(key)));
  await until("states", async () => {
    const jobs = await Promise.all(keys.map((key) => queue.getJob(key)));
    return (await Promise.all(jobs.map((job) => job.isCompleted()))).every(Boolean);
  });
}

await events.waitUntilReady();
const first = await round("first");
await finished(first);
assert(first.every((key) => done.get(key) === 1), "a job was processed twice");
assert(first.filter((key) => key.includes("again")).every((key) => tries.get(key) === 3));
await until("events", () => first.every((key) => told.has(key)));
const waited = await queue.add("one", { key: "waited" }, { jobId: "waited" });
assert.equal(await waited.waitUntilFinished(events, 5000), "waited".length);
await queue.upsertJobScheduler("every", { every: 100 }, { name: "one", data: { key: "every" }, opts: { removeOnComplete: true } });
await until("repetition", () => done.get("every") >= 3);

console.log("ready");
const begin = Date.now();
const jobs = [];
// This lasts as long as the killed node is down, and a while longer.
for (let number = 0; Date.now() < begin + 4000; number += 1) jobs.push(...(await round(`kill${number}`)));
await finished(jobs);
await until("events after the kill", () => jobs.every((key) => told.has(key)));
const repeated = done.get("every");
await until("repetition after the kill", () => done.get("every") > repeated + 2);
await queue.removeJobScheduler("every");
await until("the rest", async () => (await queue.getJobCountByTypes("active", "waiting", "delayed", "prioritized", "waiting-children")) === 0);
assert.equal(await queue.getFailedCount(), 0);
await queue.trimEvents(10);
const twice = jobs.filter((key) => done.get(key) > 1).length;
console.log(`BullMQ: ${first.length + jobs.length} jobs and their events, none lost, over a change of leader; ${twice} processed again`);
await worker.close(true);
await queue.obliterate({ force: true });
process.exit(); // Its connections would keep the process alive.
