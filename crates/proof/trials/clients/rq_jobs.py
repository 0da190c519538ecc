"""RQ, unmodified, with redis-py in Sentinel mode, over a change of leader: jobs that run at once, later, after others and
again after failures. Their results are streams. Says `ready` when the leader may be killed."""

import logging
import multiprocessing
import sys
import time
from datetime import timedelta

import redis
import rq
from redis.sentinel import Sentinel


def connect():
    sentinel = Sentinel([("127.0.0.1", int(port)) for port in sys.argv[1:]], socket_timeout=1)
    return sentinel.master_for("mymaster", socket_timeout=30)


def work(key, failures=0):
    if rq.get_current_connection().incr(f"tries:{key}") <= failures:
        raise ValueError("not yet")
    return len(key)


def serve():
    """Runs a worker. It starts again when it gives up on a connection."""
    logging.disable(logging.CRITICAL)
    while True:
        try:
            connection = connect()
            rq.SimpleWorker([rq.Queue("mail", connection=connection)], connection=connection).work(with_scheduler=True, logging_level="CRITICAL")
        except redis.RedisError:
            time.sleep(0.05)


def insist(action):
    """Repeats an action whose answer was lost."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return action()
        except redis.RedisError:
            assert time.monotonic() < deadline, "the new leader is not found"
            time.sleep(0.02)


def until(what, condition):
    deadline = time.monotonic() + 90
    while not insist(condition):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def round_of(queue, name):
    keys = [f"{name}-{number}" for number in range(20)]
    send = lambda key, **more: insist(lambda: queue.enqueue("rq_jobs.work", key, job_id=key, **more))
    for key in keys[:10]:
        send(key)
    for key in keys[10:14]:
        insist(lambda key=key: queue.enqueue_in(timedelta(milliseconds=500), "rq_jobs.work", key, job_id=key))
    for key in keys[14:17]:
        send(key, failures=2, retry=rq.Retry(max=3))
    for key, before in zip(keys[17:], keys):
        send(key, depends_on=before)
    return keys


def results(queue, keys):
    jobs = insist(lambda: rq.job.Job.fetch_many(keys, connection=queue.connection))
    return [job.return_value() if job else None for job in jobs]


def main():
    workers = [multiprocessing.Process(target=serve, daemon=False) for _ in range(2)]
    [worker.start() for worker in workers]
    try:
        queue = rq.Queue("mail", connection=connect())
        keys = round_of(queue, "first")
        until("the first round", lambda: results(queue, keys) == [len(key) for key in keys])
        print("ready", flush=True)
        begin, jobs = time.monotonic(), []
        # As long as the killed node is away, and then for a while.
        while time.monotonic() < begin + 4:
            jobs += round_of(queue, f"kill{len(jobs)}")
        # A worker takes a job from its queue before it registers it, so one of the moment of the kill may stay behind.
        until("the jobs after the kill", lambda: results(queue, jobs).count(None) <= 4)
        lost = results(queue, jobs).count(None)
        fresh = round_of(queue, "after")
        until("the jobs after all", lambda: results(queue, fresh) == [len(key) for key in fresh])
        print(f"RQ {rq.VERSION}: {len(keys) + len(jobs) + len(fresh)} jobs and their results over a change of leader; {lost} left behind")
    finally:
        [worker.kill() for worker in workers]


if __name__ == "__main__":
    main()
