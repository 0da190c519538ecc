"""redis-py in Sentinel mode, unmodified, over a change of leader. The ports are those of the nodes,
which answer as Sentinels would. Says `ready` when the leader may be killed."""

import sys
import time

import redis
from redis.sentinel import Sentinel

sentinel = Sentinel([("127.0.0.1", int(port)) for port in sys.argv[1:]], socket_timeout=1)
first = sentinel.discover_master("mymaster")
assert len(sentinel.discover_slaves("mymaster")) == 2
master = sentinel.master_for("mymaster", socket_timeout=1)
replica = sentinel.slave_for("mymaster", socket_timeout=1)
acknowledged = 0


def write(until):
    global acknowledged
    deadline = time.monotonic() + 30
    while not until():
        assert time.monotonic() < deadline, "the new leader is not found"
        try:
            master.incr("py:sentinel")
            acknowledged += 1
        except redis.RedisError:
            time.sleep(0.02)


def moved():
    try:
        return sentinel.discover_master("mymaster") != first
    except redis.sentinel.MasterNotFoundError:
        return False  # The election is not over.


write(lambda: acknowledged >= 100)
print("ready", flush=True)
write(moved)
before = acknowledged
write(lambda: acknowledged >= before + 100)
assert int(replica.get("py:sentinel")) >= acknowledged
assert master.execute_command("ROLE")[0] == b"master"
print(f"redis-py by Sentinel: {acknowledged} writes, none lost, over a change of leader")
