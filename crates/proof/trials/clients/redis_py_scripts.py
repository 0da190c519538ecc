"""redis-py's scripts and locks, unmodified, over a change of leader: EVAL, EVALSHA, pipelines, transactions, RESP2 and 3.
Says `ready` when the leader may be killed."""

import sys
import threading
import time

import redis
from redis.exceptions import LockError, NoScriptError, ResponseError
from redis.sentinel import Sentinel

ports = [int(word) for word in sys.argv[1:]]
TRANSFER = """
local from = tonumber(redis.call('hget', KEYS[1], ARGV[1]) or 0)
local amount = tonumber(ARGV[3])
if from < amount then
    return redis.error_reply('POOR ' .. ARGV[1] .. ' has ' .. from)
end
redis.call('hincrby', KEYS[1], ARGV[1], -amount)
redis.call('hincrby', KEYS[1], ARGV[2], amount)
return {from - amount, cjson.encode({to = ARGV[2]})}
"""


def refused(call, kind, text):
    try:
        call()
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError(f"it was not refused: {text}")


for protocol in (2, 3):
    for port in ports:
        node = redis.Redis(port=port, protocol=protocol)
        bank = f"py:bank:{protocol}:{port}"
        node.hset(bank, "a", 100)
        transfer = node.register_script(TRANSFER)
        assert transfer(keys=[bank], args=["a", "b", 30]) == [70, b'{"to":"b"}']
        assert node.evalsha(transfer.sha, 1, bank, "a", "b", 30)[0] == 40
        refused(lambda: transfer(keys=[bank], args=["a", "b", 50]), ResponseError, "POOR a has 40")
        refused(lambda: node.evalsha("0" * 40, 0), NoScriptError, "No matching script")
        with node.pipeline() as pipe:
            pipe.multi()
            transfer(keys=[bank], args=["a", "b", 10], client=pipe)
            pipe.hgetall(bank)
            assert pipe.execute() == [[30, b'{"to":"b"}'], {b"a": b"30", b"b": b"70"}]
        assert node.eval_ro("return redis.call('hlen', KEYS[1])", 1, bank) == 2
        refused(lambda: node.eval_ro("return redis.call('del', KEYS[1])", 1, bank), ResponseError, "read-only")
        refused(lambda: node.eval("return redis.call('incr', KEYS[1])", 1, bank), ResponseError, "WRONGTYPE")
        refused(lambda: node.eval("while true do end", 0), ResponseError, "the script was stopped")
        digest = node.script_load("return KEYS[1]")
        assert node.script_exists(digest, "f" * 40) == [True, False]
        refused(node.script_kill, ResponseError, "NOTBUSY")
        assert node.script_flush()
        refused(lambda: node.evalsha(digest, 0), NoScriptError, "No matching script")

# Transfers and locks of three threads, while the leader is killed.
sentinel = Sentinel([("127.0.0.1", port) for port in ports], socket_timeout=1)
master = sentinel.master_for("mymaster", socket_timeout=2)
names = [f"n{number}" for number in range(10)]
master.hset("py:bank", mapping={name: 1000 for name in names})
transfer = master.register_script(TRANSFER)
stop, rounds, inside, held = threading.Event(), [0, 0, 0], [], 0


def hold(number):
    global held
    lock = master.lock("py:over", timeout=10, blocking_timeout=1, sleep=0.005)
    if lock.acquire():
        inside.append(number)
        assert inside == [number], inside
        try:
            lock.extend(10, replace_ttl=True)
        finally:
            inside.remove(number)
        lock.release()
        held += 1


def work(number):
    while not stop.is_set():
        rounds[number] += 1
        at = rounds[number]
        try:
            transfer(keys=["py:bank"], args=[names[at % 10], names[(at * 7 + number) % 10], at % 50])
            hold(number)
        except (redis.RedisError, LockError):
            time.sleep(0.02)
        except AssertionError as error:
            failed.append(error)
            return


failed = []
threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
for thread in threads:
    thread.start()


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, (rounds, failed)
        time.sleep(0.01)


until(lambda: min(rounds) > 20)
print("ready", flush=True)
first = sentinel.discover_master("mymaster")


def moved():
    try:
        return sentinel.discover_master("mymaster") != first
    except redis.sentinel.MasterNotFoundError:
        return False  # The election is not over.


until(moved)
before = list(rounds)
until(lambda: all(now > then + 50 for now, then in zip(rounds, before)))
stop.set()
for thread in threads:
    thread.join()
assert not failed, failed
total = sum(int(amount) for amount in master.hgetall("py:bank").values())
assert total == 10_000, total
print(f"redis-py {redis.__version__}: {sum(rounds)} transfers and {held} locks by scripts, over a change of leader")
