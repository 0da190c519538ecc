"""Dramatiq, unmodified, with redis-py in Sentinel mode, over a change of leader: actors that run at once, later, and again
after failures. Says `ready` when the leader may be killed."""

import collections
import logging
import sys
import threading
import time

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend
from redis.sentinel import Sentinel

logging.disable(logging.CRITICAL)
sentinel = Sentinel([("127.0.0.1", int(port)) for port in sys.argv[1:]], socket_timeout=1)
client = sentinel.master_for("mymaster", socket_timeout=5)
broker = RedisBroker(client=client, heartbeat_timeout=2_000, maintenance_chance=100_000)
broker.add_middleware(Results(backend=RedisBackend(client=client)))
dramatiq.set_broker(broker)
done = collections.Counter()
tries = collections.Counter()
counting = threading.Lock()


@dramatiq.actor(max_retries=10, min_backoff=20, max_backoff=100, store_results=True)
def work(key, failures=0):
    with counting:
        tries[key] += 1
        if tries[key] <= failures:
            raise ValueError("not yet")
        done[key] += 1
    return len(key)


def until(what, condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def send(key, failures=0, delay=None):
    """Sends a message, again if the answer was lost."""
    message = work.message(key, failures)
    deadline = time.monotonic() + 60
    while True:
        try:
            broker.enqueue(message, delay=delay)
            return message
        except (redis.RedisError, dramatiq.errors.BrokerConnectionError):
            assert time.monotonic() < deadline, "the new leader is not found"
            time.sleep(0.02)


def round_of(name):
    keys = [f"{name}:{number}" for number in range(40)]
    messages = [send(key) for key in keys[:25]]
    messages += [send(key, delay=300) for key in keys[25:35]]
    messages += [send(key, failures=2) for key in keys[35:]]
    return keys, messages


worker = dramatiq.Worker(broker, worker_threads=4, worker_timeout=100)
worker.start()
keys, messages = round_of("first")
until("the first round", lambda: all(done[key] for key in keys))
assert all(done[key] == 1 for key in keys), "an actor ran twice"
assert all(tries[key] == 3 for key in keys[35:])
assert messages[0].get_result(block=True, timeout=5_000) == len(keys[0])

print("ready", flush=True)
begin, rounds = time.monotonic(), []
# As long as the killed node is away, and then for a while.
while time.monotonic() < begin + 4:
    rounds += round_of(f"kill:{len(rounds)}")[0]
missing = lambda: [key for key in rounds if not done[key]]
# A worker that lost the answer to a fetch has taken messages that it does not know of. They return when it is restarted.
until("most messages after the kill", lambda: len(missing()) <= 16)
time.sleep(1)
taken = len(missing())
worker.stop()
broker.broker_id = "restarted"
worker = dramatiq.Worker(broker, worker_threads=4, worker_timeout=100)
worker.start()
until("the messages after the kill", lambda: not missing())
twice = sum(done[key] > 1 for key in rounds)
print(f"Dramatiq {dramatiq.__version__}: {len(keys) + len(rounds)} messages, none lost, over a change of leader; {twice} ran again, {taken} after a restart of the worker")
worker.stop()
