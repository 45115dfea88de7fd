"""Checks of this process: its libraries and its limits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from hapax.operations.doctor.check import check, fail, ok, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.operations.doctor.check import Case, CheckResult

PYTHON_MIN: Final = (3, 11)
LIBRDKAFKA_MIN: Final = (2, 14)
"""docs/non-obvious.md: earlier ones lose or mix records."""
LIBRDKAFKA_TRIED: Final = (2, 16)
FILES_PER_BROKER, FILES_BESIDE = 8, 128
FILES_USUAL = 1024


@check(
    "settings",
    "the environment",
    "FAIL: a variable that nothing reads, a value that cannot be, two that contradict each "
    "other. Exit code 2, and nothing else is checked.",
    needs="process",
    now=True,
)
def _settings(_case: Case) -> Iterator[CheckResult]:
    yield ok("the settings can be read and do not contradict each other")


@check("python", "the version of Python", "FAIL: older than 3.11.", needs="process")
def _python(case: Case) -> Iterator[CheckResult]:
    found = ".".join(map(str, case.process.python))
    if case.process.python[:2] < PYTHON_MIN:
        yield fail(f"Python {found}", "run it on Python 3.11 or later")
    else:
        yield ok(f"Python {found}")


@check(
    "client-library",
    "the version of librdkafka",
    "FAIL: one that loses records. WARN: one that this service was not tested with.",
    needs="process",
)
def _client_library(case: Case) -> Iterator[CheckResult]:
    found = case.process.librdkafka
    version = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if version < LIBRDKAFKA_MIN:
        yield fail(
            f"librdkafka {found} loses or mixes records in rare cases",
            "install confluent-kafka 2.16.1 or later",
        )
    elif version < LIBRDKAFKA_TRIED:
        yield warn(
            f"librdkafka {found} is older than the version that this service was tested with",
            "install confluent-kafka 2.16.1 or later",
        )
    else:
        yield ok(f"librdkafka {found}")


@check(
    "file-descriptors",
    "how many files this process may open",
    "FAIL: too few for the connections to all brokers. WARN: fewer than 1024.",
    needs="process",
)
def _files(case: Case) -> Iterator[CheckResult]:
    most = case.process.files_max
    needed = FILES_BESIDE + FILES_PER_BROKER * len(case.kafka.listeners)
    if most is None or most >= max(FILES_USUAL, needed):
        yield ok(f"this process may open {'any number of' if most is None else most} files")
        return
    saw = f"this process may open {most} files; connections count as files"
    fix = f"raise the limit of open files (ulimit -n) to {max(FILES_USUAL, needed)}"
    yield fail(saw, fix) if most < needed else warn(saw, fix)
