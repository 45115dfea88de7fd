"""With CI=true a skip is a failure, but for what the machine cannot have: each excuse by name."""

import os
import re
import sys
from collections.abc import Callable, Generator
from typing import NamedTuple

import pytest

from tests.gate.layers import OWED
from tests.kit.native_build import buildable


class Excuse(NamedTuple):
    """Why tests may be skipped in CI.

    reason  what the skip says, as a regular expression
    plays   where they play instead, and what gets it there
    is_so   whether this machine has the excuse at all
    """

    reason: str
    plays: str
    is_so: Callable[[], bool] = lambda: True


EXCUSES = (
    Excuse(
        "NOT CHECKED by an image of its own Dockerfile",
        "make image builds it as root on Debian with buildah; then make deep",
    ),
    Excuse("takes minutes: in make full", "make full"),
    Excuse(OWED, "the next run of CI, before anything else"),
    Excuse(
        "hapax_fast|the native part is optional|the driver has it, its executors do not",
        "after apt-get install gcc python3-dev and make setup",
        lambda: not buildable(),
    ),
    Excuse("no C compiler", "after apt-get install gcc python3-dev", lambda: not buildable()),
    Excuse("this Redis was built without TLS", "with the Redis of apt-get install redis-server"),
    Excuse("this Java has no compiler", "with a JDK: apt-get install openjdk-17-jdk-headless"),
    Excuse("no Go, which compiles helm-docs", "with Go 1.22 or newer: apt-get install golang-go"),
    Excuse("no gpg", "after apt-get install gnupg"),
    Excuse("is not in this clone", "in a clone with its history: git fetch --unshallow"),
    Excuse("no IPv6", "on a machine with IPv6 on its loopback"),
    Excuse("/proc is Linux's", "on Linux", lambda: sys.platform != "linux"),
)


def excuse(reason: str) -> Excuse | None:
    """Return the excuse that this machine has for a skip; None where it has none."""
    found = (each for each in EXCUSES if re.search(each.reason, reason))
    return next((each for each in found if each.is_so()), None)


def pytest_configure(config: pytest.Config) -> None:
    """Let a file that is skipped, and must not be, hide no failure of another."""
    if os.environ.get("CI") == "true":
        config.option.continue_on_collection_errors = True


def _judge(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Make a failure of a skip that has no excuse."""
    if os.environ.get("CI") != "true" or report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if excuse(reason) is None:
        report.outcome = "failed"
        report.longrepr = f"CI skips nothing that this machine can have: {reason}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _judge(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _judge(report)
    return report
