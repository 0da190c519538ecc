"""Pytest plugin for Quorate: writes a line of JSON for each test, and an empty line at the end."""

import json
import os
import tracemalloc

import pytest

seen = {}
# redis-py's tests trace every allocation, which would take most of their time.
tracemalloc.start = lambda: None


def write(line):
    with open(os.environ["QUORATE_REPORT"], "a") as file:
        file.write(line + "\n")


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session):
    # redis-py's tests of expiring fields require Redis 7.4; INFO reports an earlier version.
    session.config.REDIS_INFO["version"] = "7.4.0"


def pytest_runtest_logreport(report):
    name = report.nodeid.split("::", 1)[-1]
    if name not in seen or report.outcome != "passed":
        seen[name] = (report.outcome, report.longreprtext)
    if report.when == "teardown":
        outcome, details = seen.pop(name)
        if outcome != "rerun":
            write(json.dumps({"name": name, "outcome": outcome, "details": details[-2000:]}))


def pytest_collectreport(report):
    if report.failed:
        details = report.longreprtext[-2000:]
        write(json.dumps({"name": report.nodeid, "outcome": "failed", "details": details}))


def pytest_sessionfinish():
    write("")
