"""redis-py, unmodified, against the ports given as arguments."""

import sys
import threading

import redis

ports = [int(word) for word in sys.argv[1:]]

for protocol in (2, 3):
    for port in ports:
        node = redis.Redis(port=port, protocol=protocol, decode_responses=True)
        assert node.ping()
        name = f"py:{protocol}:{port}"
        assert node.set(name, "1", ex=1000)
        for other in ports:
            reader = redis.Redis(port=other, protocol=protocol, decode_responses=True)
            assert reader.get(name) == "1", "a read sees the write, on every node"
            assert 0 < reader.ttl(name) <= 1000
        assert node.incrby(name, 41) == 42
        assert node.mget(name, "py:none") == ["42", None]
        assert node.set(name, "x", nx=True) is None
        assert node.type(name) == "string"
        assert node.exists(name) == 1
        assert name in set(node.scan_iter(match="py:*"))

        with node.pipeline(transaction=True) as pipe:
            pipe.set(name, "10")
            pipe.incr(name)
            assert pipe.execute() == [True, 11]
        with node.pipeline() as pipe:
            pipe.watch(name)
            redis.Redis(port=ports[0], protocol=protocol).set(name, "20")
            pipe.multi()
            pipe.incr(name)
            try:
                pipe.execute()
                raise AssertionError("a watched key changed, and EXEC went through")
            except redis.WatchError:
                pass
        url = f"redis://localhost:{port}/1"
        second = redis.Redis.from_url(url, protocol=protocol, decode_responses=True)
        assert second.get(name) is None and second.set(name, "in 1")
        assert node.get(name) == "20" and not node.move(name, 1)
        assert second.get(name) == "in 1" and second.delete(name) == 1
        kinds = [f"{name}:{kind}" for kind in ("list", "hash", "set", "sorted")]
        assert node.rpush(kinds[0], "a", "b") == 2 and node.llen(kinds[0]) == 2
        assert node.hset(kinds[1], mapping={"a": 1, "b": 2}) == 2 and node.hlen(kinds[1]) == 2
        assert node.sadd(kinds[2], "a", "b", "a") == 2 and node.scard(kinds[2]) == 2
        assert node.zadd(kinds[3], {"a": 1.5, "b": 2}) == 2 and node.zscore(kinds[3], "a") == 1.5
        assert node.delete(*kinds) == 4
        stream = f"{name}:log"
        entry = node.xadd(stream, {"a": 1})
        assert node.xgroup_create(stream, "group", id="0") and node.xlen(stream) == 1
        assert node.xreadgroup("group", "worker", {stream: ">"}, count=1, block=100)
        assert node.xpending(stream, "group")["pending"] == 1
        assert node.xack(stream, "group", entry) == 1 and node.delete(stream) == 1
        try:
            node.lolwut()
            raise AssertionError("an unknown command was taken")
        except redis.ResponseError as error:
            assert "unknown command" in str(error)
        assert node.delete(name) == 1


def count(port):
    node = redis.Redis(port=port)
    for _ in range(200):
        node.incr("py:counter")


threads = [threading.Thread(target=count, args=(port,)) for port in ports * 2]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert int(redis.Redis(port=ports[0]).get("py:counter")) == 200 * len(threads)
print(f"redis-py {redis.__version__}: RESP2 and RESP3 on {len(ports)} nodes")
