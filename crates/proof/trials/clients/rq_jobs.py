"""RQ, unmodified, with redis-py in Sentinel mode, over a change of leader: jobs that run at once, after others, and again after
failures, in two worker processes. Says `ready` when the leader may be killed."""

import logging
import subprocess
import sys
import time

import redis
import rq
from redis.sentinel import Sentinel
from rq import Queue, Retry, SimpleWorker

import rq_jobs

ports = [port for port in sys.argv[1:] if port.isdigit()]
sentinel = Sentinel([("127.0.0.1", int(port)) for port in ports], socket_timeout=1)
client = sentinel.master_for("mymaster", socket_timeout=30)


def again(what):
    """Calls until the answer is not lost."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return what()
        except redis.RedisError:
            assert time.monotonic() < deadline, "the new leader is not found"
            time.sleep(0.02)


def work(key, failures=0):
    if client.incr(f"tries:{key}") <= failures:
        raise ValueError("not yet")
    client.sadd("done", key)
    return len(key)


def until(what, condition):
    deadline = time.monotonic() + 90
    while not again(condition):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def round_of(name):
    keys = [f"{name}:{number}" for number in range(20)]
    send = lambda key, *args, **options: again(lambda: queue.enqueue(rq_jobs.work, key, *args, **options))
    jobs = [send(key) for key in keys[:10]]
    jobs += [send(key, depends_on=job) for key, job in zip(keys[10:15], jobs)]
    jobs += [send(key, 2, retry=Retry(max=50)) for key in keys[15:]]
    return keys, jobs


def done(keys):
    return sum(client.smismember("done", keys))


if __name__ == "__main__" and sys.argv[1] == "worker":
    logging.disable(logging.CRITICAL)
    # Two workers that finish at once may each leave a dependent job to the next maintenance.
    SimpleWorker([Queue("jobs", connection=client)], connection=client, maintenance_interval=1, worker_ttl=17).work()
elif __name__ == "__main__":
    queue = Queue("jobs", connection=client)
    workers = [subprocess.Popen([sys.executable, __file__, "worker", *ports]) for _ in range(2)]
    try:
        keys, jobs = round_of("first")
        until("the first round", lambda: done(keys) == len(keys))
        assert [int(again(lambda: client.get(f"tries:{key}"))) for key in keys] == [1] * 15 + [3] * 5
        until("a result", lambda: jobs[0].return_value() == len(keys[0]))
        print("ready", flush=True)
        begin, rounds = time.monotonic(), []
        # As long as the killed node is away, and then for a while.
        while time.monotonic() < begin + 4:
            rounds += round_of(f"kill:{len(rounds)}")[0]
        # RQ takes a job from its queue before it runs it. A job whose answer was lost in the kill stays taken, and jobs that
        # depend on it wait.
        until("the jobs after the kill", lambda: len(rounds) - done(rounds) <= 8)
        fresh, _ = round_of("after")
        until("the jobs after all", lambda: done(fresh) == len(fresh))
        lost = len(rounds) - done(rounds)
        total = len(keys) + len(rounds) + len(fresh)
        print(f"RQ {rq.__version__}: {total} jobs over a change of leader; {lost} lost with an answer")
    finally:
        for worker in workers:
            worker.kill()
