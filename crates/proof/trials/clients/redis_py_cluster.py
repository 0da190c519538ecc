"""redis-py in cluster mode, unmodified, over a change of leader. The ports are those of the nodes,
which emulate a cluster. Says `ready` when the leader may be killed."""

import sys
import time

import redis
from redis.cluster import ClusterNode, RedisCluster

nodes = [ClusterNode("127.0.0.1", int(port)) for port in sys.argv[1:]]
cluster = RedisCluster(startup_nodes=nodes, socket_timeout=1)
assert len(cluster.get_primaries()) > 1, "its connections are not spread"
keys = [f"py:cluster:{number}" for number in range(20)]
acknowledged = 0


def write(seconds):
    global acknowledged
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for key in keys:
            try:
                cluster.incr(key)
                acknowledged += 1
            except redis.RedisError:
                time.sleep(0.02)


write(0.5)
print("ready", flush=True)
write(3)
before = acknowledged
write(0.5)
assert acknowledged >= before + len(keys), "it does not go on"
assert sum(int(cluster.get(key)) for key in keys) >= acknowledged
print(f"redis-py in cluster mode: {acknowledged} writes, none lost, over a change of leader")
