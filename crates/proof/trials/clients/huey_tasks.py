"""Huey, unmodified, with redis-py in Sentinel mode, over a change of leader: tasks that run at once, later, periodically,
and again after failures. Says `ready` when the leader may be killed."""

import collections
import logging
import sys
import threading
import time

import huey as package
import redis
from huey import PriorityRedisHuey, crontab
from redis.sentinel import Sentinel, SentinelConnectionPool

logging.disable(logging.CRITICAL)
sentinel = Sentinel([("127.0.0.1", int(port)) for port in sys.argv[1:]], socket_timeout=1)
pool = SentinelConnectionPool("mymaster", sentinel, socket_timeout=5)
queue = PriorityRedisHuey("mail", connection_pool=pool)
done = collections.Counter()
tries = collections.Counter()
counting = threading.Lock()


@queue.task(retries=5, retry_delay=0)
def work(key, failures=0):
    with counting:
        tries[key] += 1
        if tries[key] <= failures:
            raise ValueError("not yet")
        done[key] += 1
    return len(key)


@queue.periodic_task(crontab())
def every_minute():
    done["every minute"] += 1


def until(what, condition):
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def send(key, **options):
    """Sends a task, again if the answer was lost."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return work.schedule((key,), **options) if "delay" in options else work(key, **options)
        except redis.RedisError:
            assert time.monotonic() < deadline, "the new leader is not found"
            time.sleep(0.02)


def round_of(name):
    keys = [f"{name}:{number}" for number in range(40)]
    results = [send(key, priority=number % 3) for number, key in enumerate(keys[:25])]
    results += [send(key, delay=1) for key in keys[25:35]]
    results += [send(key, failures=2) for key in keys[35:]]
    return keys, results


consumer = queue.create_consumer(workers=4, backoff=1.0, max_delay=0.1, initial_delay=0.05, check_worker_health=True)
consumer.start()
keys, results = round_of("first")
until("the first round", lambda: all(done[key] for key in keys))
assert all(done[key] == 1 for key in keys), "a task ran twice"
assert all(tries[key] == 3 for key in keys[35:])
assert results[0].get(blocking=True, timeout=5) == len(keys[0])
lock = queue.lock_task("once")
with lock:
    assert queue.is_locked("once")
assert not queue.is_locked("once")

print("ready", flush=True)
begin, rounds = time.monotonic(), []
# As long as the killed node is away, and then for a while.
while time.monotonic() < begin + 4:
    rounds += round_of(f"kill:{len(rounds)}")[0]
# Huey takes a task from its queue before it runs it, so those of the moment of the kill may be lost with their answers.
until("the tasks after the kill", lambda: sum(not done[key] for key in rounds) <= 4)
fresh, _ = round_of("after")
until("the tasks after all", lambda: all(done[key] for key in fresh))
until("the periodic task", lambda: done["every minute"])
lost = sum(not done[key] for key in rounds)
print(f"Huey {package.__version__}: {len(keys) + len(rounds) + len(fresh)} tasks over a change of leader; {lost} lost with an answer")
consumer.stop()
