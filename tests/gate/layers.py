"""Which layer a test belongs to, and which of a layer this run plays: ``--layer``, ``--share``.

rules     no broker: unit, contract in memory, simulation, pages; each commit plays all of it
promises  each promise once on real servers: tests of ``admitted.tsv``, and the contract on real
          brokers by one of the two ways of records, which changes with the turn
deep      what else needs real servers, a browser, Helm: shares that rotate (tests/kit/turn.py)
long      faults that take minutes, in shares, too
alone     what asserts seconds: ``make full`` gives it the machine

A run may have a time box (``--minutes``). What it did not reach is skipped as owed (``--owed``),
and a later run plays that first (``--first``), as tests/kit/turn.py has it for faults.
"""

import os
import time
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.gate import admission
from tests.kit.turn import is_in_share, turn

LAYERS = ("rules", "promises", "deep", "long", "alone")
OWED = "owed: the time box of this run was over"
RECORD_PATHS = ("kafka", "kafka-native")
"""Parameters of tests of the contract: the Python and the native way of records, both real."""
_SERVERS = {"sandbox", "cluster", "guarded"}
"""Fixtures that start brokers."""
LONGEST = (
    "spark",
    "tests/integration/test_worker_faults.py",
    "tests/contract/test_native_batches.py",
    "tests/integration/test_worker_stops.py",
    "tests/integration/test_doctor.py",
    "tests/integration/test_other_cluster.py",
    "tests/integration/test_spool.py",
    "tests/contract/test_claims_primary.py",
    "tests/contract/test_rules_late_requests.py",
)
"""Groups of promises that take most time, which begin first: no lane ends long after the others."""
_BOX_ENDS = "GATE_BOX_ENDS"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gate")
    group.addoption("--layer", choices=LAYERS, help="play the tests of one layer")
    group.addoption("--share", type=int, default=1, help="play one in so many, by the turn")
    group.addoption("--minutes", type=float, help="begin no test after so many minutes")
    group.addoption("--first", type=Path, help="file of tests that are played before the share")
    group.addoption("--owed", type=Path, help="file for the tests that were not begun")
    group.addoption("--at-least", type=int, default=0, help="fewer tests played: a failure")


def layer_of(item: pytest.Item, now: int) -> str:
    for mark in ("alone", "long", "deep"):
        if item.get_closest_marker(mark):
            return mark
    if not item.get_closest_marker("real"):
        return "rules"
    if admission.is_admitted(item.nodeid):
        return "promises"
    of_turn = (None, RECORD_PATHS[now % len(RECORD_PATHS)])
    is_of_contract = item.nodeid.startswith("tests/contract/")
    return "promises" if is_of_contract and record_path_of(item) in of_turn else "deep"


def record_path_of(item: pytest.Item) -> str | None:
    """Return by which way of records a test of the contract runs on a broker; None: by neither."""
    call = getattr(item, "callspec", None)
    values = () if call is None else call.params.values()
    return next((each for each in values if each in RECORD_PATHS), None)


def pytest_configure(config: pytest.Config) -> None:
    """Fix the end of the time box where all processes of the run see the same one."""
    minutes = config.getoption("--minutes")
    if minutes is not None and not hasattr(config, "workerinput"):
        os.environ[_BOX_ENDS] = str(time.time() + 60 * minutes)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs brokers; keep the layer and the share of this run, what is owed first."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        starts_servers = item.nodeid.startswith("tests/integration/")
        if starts_servers or record_path_of(item) or _SERVERS.intersection(names):
            item.add_marker("real")
    layer, share = config.getoption("--layer"), config.getoption("--share")
    if layer is None:
        return
    now, owed = turn(), named_in(config.getoption("--first"))
    of_layer = [item for item in items if layer_of(item, now) == layer]
    first = [item for item in of_layer if item.nodeid in owed]
    then = [item for item in of_layer if item.nodeid not in owed]
    kept = first + [item for item in then if is_in_share(function_of(item.nodeid), share, now)]
    if layer == "promises":
        kept.sort(key=lambda item: _rank(group_of(item.nodeid)))
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling | None:
    """Keep tests that share servers in one process, in the order of this run."""
    return ByServers(config, log) if config.getoption("--layer") else None


class ByServers(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Gives each lane whole groups."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def function_of(nodeid: str) -> str:
    """Return a test without its parameters, which are played together: they share servers."""
    return nodeid.partition("[")[0]


def group_of(nodeid: str) -> str:
    """Return whose processes a test shares. Spark takes both cores: two sessions are too many."""
    file = nodeid.partition("::")[0]
    return "spark" if "spark" in nodeid else file


def _rank(group: str) -> int:
    return LONGEST.index(group) if group in LONGEST else len(LONGEST)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Begin nothing once the box is over."""
    ends = os.environ.get(_BOX_ENDS)
    if ends is not None and time.time() > float(ends):
        pytest.skip(OWED)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name what is owed, and keep it for the next run."""
    skipped = terminalreporter.getreports("skipped")
    owed = [each.nodeid for each in skipped if OWED in str(getattr(each, "longrepr", ""))]
    file = config.getoption("--owed")
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{nodeid}\n" for nodeid in owed), encoding="utf-8")
    for function in dict.fromkeys(function_of(each) for each in owed):
        terminalreporter.write_line(f"owed: {function}")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in a box that played less than it must."""
    config = session.config
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if hasattr(config, "workerinput") or not isinstance(terminal, pytest.TerminalReporter):
        return
    played = len(terminal.getreports("passed"))
    if played < config.getoption("--at-least"):
        terminal.write_line(f"failed: too little was played ({played} tests) (call)")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def named_in(file: Path | None) -> frozenset[str]:
    """Return what an earlier run owes."""
    if file is None or not file.is_file():
        return frozenset()
    return frozenset(file.read_text(encoding="utf-8").splitlines())
