"""redis-py's locks, unmodified, against the ports given as arguments."""

import sys
import threading
import time

import redis
from redis.exceptions import LockError, LockNotOwnedError

ports = [int(word) for word in sys.argv[1:]]


def refused(call, *kinds):
    try:
        call()
    except kinds:
        return
    raise AssertionError("it was not refused")


for protocol in (2, 3):
    for port in ports:
        node = redis.Redis(port=port, protocol=protocol)
        other = redis.Redis(port=ports[0], protocol=protocol)
        name = f"py:lock:{protocol}:{port}"
        lock = node.lock(name, timeout=20)
        rival = other.lock(name, timeout=20)
        assert lock.acquire()
        assert not rival.acquire(blocking=False), "it is taken, on every node"
        assert lock.locked() and lock.owned() and not rival.owned()
        assert lock.extend(10)
        assert 25_000 < node.pttl(name) <= 30_000, node.pttl(name)
        assert lock.extend(5, replace_ttl=True)
        assert 3_000 < node.pttl(name) <= 5_000
        assert lock.reacquire()
        assert 15_000 < node.pttl(name) <= 20_000
        rival.local.token = b"another's"
        refused(rival.release, LockNotOwnedError)
        rival.local.token = b"another's"
        refused(lambda: rival.extend(5), LockNotOwnedError)
        refused(rival.reacquire, LockNotOwnedError)
        lock.release()
        assert not rival.locked()
        refused(lock.release, LockError)
        # An expired lock belongs to another client.
        short = node.lock(name, timeout=0.05)
        assert short.acquire()
        assert other.lock(name, timeout=20, blocking_timeout=20).acquire()
        refused(short.release, LockNotOwnedError)
        assert node.delete(name) == 1

        # The commands that the lock consists of, issued directly.
        assert node.set(name, "mine", px=20_000)
        script = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
        assert node.eval(script, 1, name, "other") == 0
        assert node.register_script(script)(keys=[name], args=["mine"]) == 1
        assert node.eval("return 1", 0) == 1

# No thread loses an increment, whichever node it uses.
count = 0


def work(port):
    global count
    node = redis.Redis(port=port)
    for _ in range(20):
        with node.lock("py:mutex", timeout=30, sleep=0.001):
            seen = count
            time.sleep(0.0005)
            count = seen + 1


threads = [threading.Thread(target=work, args=(port,)) for port in ports]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert count == 20 * len(threads), count
print(f"redis-py {redis.__version__}: locks on {len(ports)} nodes")
