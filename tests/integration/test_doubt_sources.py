"""Doubts by counted requests against doubts by lines, on the same transactions (KAFKA-17754).

``ROUNDS=full pytest tests/integration/test_doubt_sources.py`` leaves the table of
docs/decisions/own-detector.md in build/doubts.
"""

from __future__ import annotations

import functools
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pytest

from hapax.core.errors import BatchAbortedError, ProducerDeadError
from hapax.core.record_path import Outputs
from hapax.kafka.produce import producer as kafka_producer
from hapax.kafka.produce.producer import ClientLog
from hapax.kafka.properties import SOCKET_TIMEOUT_MS, build
from hapax.sandbox import Broker, SandboxTopic
from tests.fault.cluster import Cluster
from tests.kit.faults import Rule
from tests.kit.native_build import needs_fast
from tests.kit.parts import Parts
from tests.kit.proof import at_length, rounds
from tests.kit.proxy import FaultProxy
from tests.kit.topics import produce
from tests.kit.waiting import PATIENCE_S, await_, reaches

if TYPE_CHECKING:
    from hapax.kafka.produce.producer import LogLine

# Both sources of doubt on the same transactions: requests as they are counted, and the lines.
#
# A case is one transaction, and whether a request of it may still arrive when it has ended. That is
# known from what the case does to the wire, not from either source.

CLIENT = "producer-in-doubt"
"""The producer's ``client.id``: the consumer of the same process has another."""
COUNTED = "sent, and "
"""In every doubt that a count of requests gave, and in no line."""


class Verdict(NamedTuple):
    """What each source reports of one transaction that has ended."""

    requests: list[str]
    lines: list[str]


class BothSources(ClientLog):
    """Counts requests, as the service does with the native part, and reads the lines as well."""

    def __init__(self, client: str, forward: LogLine, trial: Trial) -> None:
        super().__init__(client, forward)
        self._verdicts = trial.verdicts
        trial.sources = self
        self._lines = ClientLog(client, lambda *_line: None)

    def log(self, level: int, _form: str, *parts: object) -> None:
        self._lines.log(level, _form, *parts)
        super().log(level, _form, *parts)

    def begin(self) -> None:
        self._lines.begin()
        super().begin()

    def end(self) -> list[str]:
        doubts = super().end()
        counted = [doubt for doubt in doubts if COUNTED in doubt]
        lines = self._lines.end()
        self._verdicts.append(Verdict(counted, lines))
        return doubts + lines


class Trial:
    """One member and one producer, with both sources; transactions are judged one by one.

    more         properties of the producers that are built from now on
    patience_ms  how long they wait for an answer
    sources      of the newest producer
    """

    sources: BothSources
    patience_ms = 1000

    def __init__(self, patch: pytest.MonkeyPatch, bootstrap: str, *names: str) -> None:
        self.verdicts: list[Verdict] = []
        self._fast: Any = import_module("hapax_fast")
        self.more: dict[str, Any] = {}

        def built(client: Callable[..., Any], properties: Any, log: Any) -> Any:
            made = build(client, {**properties, **self.more}, log)
            log.watch(self._fast, self._fast.captured())
            return made

        self.reset()
        patch.setattr(kafka_producer, "build", built)
        patch.setattr(kafka_producer, "ClientLog", functools.partial(BothSources, trial=self))
        self.parts = Parts(bootstrap, *names)

    def reset(self) -> None:
        """Build producers as the service does, that also write lines."""
        self.more = {
            "client.id": CLIENT,
            "debug": "broker",
            "plugin.library.paths": self._fast.PLUGIN,
            "socket.timeout.ms": self.patience_ms,
        }

    def __enter__(self) -> Self:
        self.parts.__enter__()
        return self

    def __exit__(self, *_error: object) -> None:
        self.parts.__exit__()

    def renew(self, **more: Any) -> None:
        self.reset()
        self.more |= {name.replace("_", "."): value for name, value in more.items()}
        self.replace()

    def judge(self, run: Callable[[], None]) -> Verdict:
        """Run a transaction; return both verdicts at its end, or when its producer died."""
        del self.verdicts[:]
        try:
            with suppress(BatchAbortedError):
                run()
        except ProducerDeadError:
            self.sources.end()
            self.replace()
        verdict = self.verdicts[-1]
        if self.parts.transaction.doubts:
            self.replace()
        return verdict

    def replace(self) -> None:
        """Build a new producer, and wait for brokers that are just away."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.parts.transaction.open()
            except ProducerDeadError:
                if time.monotonic() > deadline_s:
                    raise
            else:
                return


class Row(NamedTuple):
    """One line of the table: how many transactions ended, and how many each source doubted."""

    ended: int = 0
    requests: int = 0
    lines: int = 0

    def plus(self, verdicts: Iterable[Verdict]) -> Row:
        ended = list(verdicts)
        return Row(
            self.ended + len(ended),
            self.requests + sum(bool(each.requests) for each in ended),
            self.lines + sum(bool(each.lines) for each in ended),
        )


HEADINGS = {
    True: "a request may still arrive: found",
    False: "no request can: false alarms",
    None: "chance decides: doubted",
}


class Table:
    """What was done, whether a request may still arrive afterwards, and what each source found."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, bool | None], Row] = {}

    def add(self, name: str, verdicts: Iterable[Verdict], *, late: bool | None) -> Row:
        """Add to the line of this name; return what is new in it. ``late`` None: chance decides."""
        found = list(verdicts)
        self._rows[name, late] = self._rows.get((name, late), Row()).plus(found)
        return Row().plus(found)

    def text(self) -> str:
        """Return it as it is in docs/decisions/own-detector.md."""
        lines = []
        for late, heading in HEADINGS.items():
            rows = {name: row for (name, is_late), row in self._rows.items() if is_late == late}
            sums = Row(*(sum(each) for each in zip(*rows.values(), strict=True))) if rows else Row()
            lines += [
                f"| {heading} | transactions | by requests | by lines |",
                "|---|--:|--:|--:|",
                *(f"| {name} | {' | '.join(map(str, row))} |" for name, row in rows.items()),
                f"| **sum** | {' | '.join(f'**{each}**' for each in sums)} |",
                "",
            ]
        return "\n".join(lines)

    def note(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "doubts.md").write_text(self.text())


pytestmark = needs_fast
APIS = ["AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit"]
STRUCK = [*((api, True) for api in APIS), ("EndTxn", True), ("EndTxn", False)]
LOSSES = ["reset_before", "reset_after", "drop", "mute_after", "delay"]
"""The request lost and the connection cut, the answer lost and the connection cut, each of them
with a connection that stays, and a request that is late by more than the client waits."""
ROUNDS = rounds(1, 4)
LATE_MS = 2500


@pytest.fixture(scope="module")
def table(pytestconfig):
    found = Table()
    yield found
    found.note(pytestconfig.rootpath / "build" / "doubts")


@pytest.fixture
def trial(sandbox, proxied_broker, unique, monkeypatch):
    source, target = unique("source"), unique("target")
    sandbox.create_topics(SandboxTopic(source), SandboxTopic(target))
    produce(sandbox.bootstrap_servers, source, *(b"%d" % number for number in range(400)))
    with Trial(monkeypatch, proxied_broker.proxied, source, target, unique("app")) as trial:
        transact(trial)
        yield trial


def transact(
    trial: Trial, *, commit: bool = True, between: Callable[[], None] | None = None
) -> None:
    """Process one record, or abort it; ``between`` runs when all sent so far is answered."""
    parts = trial.parts
    batch = parts.take(1)
    parts.begin(batch)
    if between is not None or not commit:
        outbox = parts.transaction._outbox
        assert outbox is not None
        assert outbox.producer.flush(10) == 0
    if between is not None:
        between()
    if not commit:
        parts.transaction.abort()
        parts.source.rewind(batch.first)
        return
    parts.transaction.send_offsets(batch.next)
    parts.transaction.commit()
    parts.source.mark_processed(batch.next)


def judged(trial: Trial, times: int, run: Callable[[], None]) -> list[Verdict]:
    return [trial.judge(run) for _ in range(times)]


@pytest.mark.parametrize("action", LOSSES)
@pytest.mark.parametrize(("api", "commit"), STRUCK)
def test_a_request_that_may_still_arrive_is_doubted_by_both(
    trial, proxied_broker, table, api, action, *, commit
):
    finished = 0

    def run() -> None:
        nonlocal finished
        rule = proxied_broker.proxy.add(Rule(api, action, client_id=CLIENT, delay_ms=LATE_MS))
        try:
            transact(trial, commit=commit)
            finished += 1
        finally:
            proxied_broker.proxy.clear()
            assert rule.hit.is_set()

    found = judged(trial, ROUNDS, run)
    end = "" if api != "EndTxn" else ", commit" if commit else ", abort"
    row = table.add(f"`{api}`{end}: lost, unanswered or late", found, late=True)
    assert row == Row(ROUNDS, ROUNDS, ROUNDS), found
    if action.startswith("reset"):
        assert finished == ROUNDS, "it does not go on over another connection"


def disconnects(trial: Trial) -> int:
    outbox = trial.parts.transaction._outbox
    assert outbox is not None
    return int(outbox.log._disconnects())


CONNECTIONS = 2
"""Of a producer at work: to the broker, and to it once more as the coordinator."""


def broken(trial: Trial, strike: Callable[[], object], count: int = 1) -> Callable[[], None]:
    """Return what strikes, and waits until the client has noticed: all sent before is answered.

    ``count``: of so many connections. What is sent on one that it takes to be alive is lost.
    """

    def between() -> None:
        before = disconnects(trial)
        strike()
        await_(lambda: disconnects(trial) >= before + count)

    return between


def idle(trial: Trial, _proxy: FaultProxy) -> None:
    """The client closes a connection that it has not used for a while."""
    trial.renew(connections_max_idle_ms=1000)
    transact(trial, between=broken(trial, lambda: None))
    trial.renew()


def cut(trial: Trial, proxy: FaultProxy) -> None:
    transact(trial, between=broken(trial, lambda: proxy.cut(CLIENT), CONNECTIONS))


def cut_between_transactions(trial: Trial, proxy: FaultProxy) -> None:
    broken(trial, lambda: proxy.cut(CLIENT), CONNECTIONS)()
    transact(trial)


def metadata_lost(trial: Trial, proxy: FaultProxy) -> None:
    proxy.add(Rule("Metadata", "reset_before", client_id=CLIENT))
    outbox = trial.parts.transaction._outbox
    assert outbox is not None
    transact(trial, between=broken(trial, outbox.connect))


def coordinator_search_lost(trial: Trial, proxy: FaultProxy) -> None:
    trial.renew()
    rule = proxy.add(Rule("FindCoordinator", "reset_after", client_id=CLIENT))
    transact(trial)
    assert rule.hit.is_set()


def away_before_anything_is_sent(trial: Trial, proxy: FaultProxy) -> None:
    """Requests wait in the client until brokers are back, and are sent once."""
    outage = ExitStack()

    def come_back() -> None:
        tried = disconnects(trial)
        reaches(lambda: disconnects(trial) >= tried + 4, 30)
        outage.close()

    back = threading.Thread(target=come_back)

    def leave() -> None:
        broken(trial, lambda: outage.enter_context(proxy.offline()), CONNECTIONS)()
        back.start()

    with outage:
        transact(trial, between=leave)
        back.join()


def slow_answers(trial: Trial, proxy: FaultProxy) -> None:
    rules = [
        proxy.add(Rule(api, "delay", client_id=CLIENT, delay_ms=400)) for api in [*APIS, "EndTxn"]
    ]
    transact(trial)
    assert all(rule.hit.is_set() for rule in rules)


def refused_for_now(trial: Trial, proxy: FaultProxy) -> None:
    """Each request is answered, with an error for which the client sends it again."""
    codes = {"AddOffsetsToTxn": 51, "TxnOffsetCommit": 14, "EndTxn": 51, "Produce": 6}
    rules = [
        proxy.add(Rule(api, "refuse", client_id=CLIENT, code=code)) for api, code in codes.items()
    ]
    transact(trial)
    assert all(rule.hit.is_set() for rule in rules)


def aborted_with_outputs_unsent(trial: Trial, proxy: FaultProxy) -> None:
    for api in ("AddPartitionsToTxn", "Produce"):
        proxy.add(Rule(api, "delay", client_id=CLIENT, delay_ms=800, times=3))
    batch = trial.parts.take(1)
    trial.parts.transaction.begin()
    message = trial.parts.copy(batch.records[0])
    trial.parts.transaction.send(Outputs([message] * 5000))
    trial.parts.transaction.abort()
    trial.parts.source.rewind(batch.first)


HARMLESS = {
    "no fault, commit": lambda trial, _proxy: transact(trial),
    "no fault, abort": lambda trial, _proxy: transact(trial, commit=False),
    "the client closes an idle connection": idle,
    "connections cut while all is answered": cut,
    "connections cut between transactions": cut_between_transactions,
    "a Metadata request lost": metadata_lost,
    "a FindCoordinator answer lost": coordinator_search_lost,
    "brokers away before anything is sent": away_before_anything_is_sent,
    "each answer slow": slow_answers,
    "each request refused for now, and sent again": refused_for_now,
    "aborted with outputs unsent": aborted_with_outputs_unsent,
}


@pytest.mark.parametrize("what", HARMLESS)
def test_what_leaves_no_request_behind_is_doubted_by_no_count(trial, proxied_broker, table, what):
    def run() -> None:
        try:
            HARMLESS[what](trial, proxied_broker.proxy)
        finally:
            proxied_broker.proxy.clear()

    trial.patience_ms = SOCKET_TIMEOUT_MS  # nothing is late here but on a slow machine
    trial.renew()
    times = 10 * ROUNDS if what.startswith("no fault") else ROUNDS
    found = judged(trial, times, run)
    row = table.add(what, found, late=False)
    assert (row.ended, row.requests) == (times, 0), found
    assert not (what.startswith("no fault") and row.lines), found


@pytest.mark.parametrize("fast", ["off", "on"])
def test_lines_are_asked_for_only_where_they_are_read(sandbox, unique, fast):
    source, target = unique("source"), unique("target")
    sandbox.create_topics(SandboxTopic(source), SandboxTopic(target))
    produce(sandbox.bootstrap_servers, source, b"0", b"1")
    names = (sandbox.bootstrap_servers, source, target, unique("app"))
    with Parts(*names, HAPAX_FAST=fast) as parts:
        for _record in range(2):
            parts.process(parts.take(1))
            assert parts.transaction.doubts == [], parts.lines
        assert any("changed state" in line for line in parts.lines) == (fast == "off")


# -- brokers that die or move -------------------------------------------------------------------


@pytest.fixture
def replicated(cluster, unique, monkeypatch):
    source, target, app = unique("source"), unique("target"), unique("app")
    cluster.create_topics(SandboxTopic(source), SandboxTopic(target))
    produce(cluster.bootstrap_servers, source, *(b"%d" % number for number in range(100)))
    with (
        FaultProxy.before(cluster) as proxy,
        Trial(monkeypatch, proxy.bootstrap, source, target, app) as trial,
    ):
        transact(trial)
        replicated = Replicated(trial, proxy, Cluster(cluster), target, f"{app}:test")
        try:
            yield replicated
        finally:
            proxy.clear()
            replicated.cluster.restore()
            assert replicated.cluster.await_in_step()


class Replicated(NamedTuple):
    """A trial on three brokers."""

    trial: Trial
    proxy: FaultProxy
    cluster: Cluster
    target: str
    transactional_id: str

    def addressee(self, api: str) -> Broker:
        """Return the broker that takes such requests of this producer."""
        if api == "Produce":
            return self.cluster.leader(self.target, 0)
        return self.cluster.coordinator("transactions", self.transactional_id)

    def transact_while(self, api: str, strike: Callable[[Broker], object]) -> None:
        """Run a transaction; strike the broker when such a request is on its way to it."""
        broker = self.addressee(api)
        rule = self.proxy.add(Rule(api, "hold", client_id=CLIENT))

        def wait() -> None:
            rule.wait_hit()
            strike(broker)

        striking = threading.Thread(target=wait)
        striking.start()
        try:
            transact(self.trial)
        finally:
            striking.join()
            rule.discard()


def frozen(broker: Broker) -> None:
    """Freeze a broker for longer than the client waits for an answer."""
    broker.pause()
    time.sleep(LATE_MS / 1000)
    broker.resume()


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "frozen"])
@pytest.mark.parametrize("api", ["Produce", "EndTxn"])
def test_a_request_on_its_way_to_a_broker_that_dies_is_doubted_by_both(replicated, table, api, how):
    strikes = {"killed": lambda broker: broker.kill(), "frozen": frozen}

    def run() -> None:
        replicated.transact_while(api, strikes[how])

    found = []
    for _ in range(ROUNDS):
        found.append(replicated.trial.judge(run))
        replicated.cluster.restore()
        assert replicated.cluster.await_in_step()
    row = table.add(f"broker {how} with `{api}` on its way", found, late=True)
    assert row == Row(ROUNDS, ROUNDS, ROUNDS), found


def patient(replicated: Replicated) -> Trial:
    """Let the producer wait as long as that of the service: brokers that take over are slow."""
    replicated.trial.patience_ms = SOCKET_TIMEOUT_MS
    replicated.trial.renew()
    return replicated.trial


def nothing_was_missed(proxy: FaultProxy, found: list[Verdict]) -> None:
    """Compare with the wire: requests that came, and whose answers never went back.

    More may be counted: an answer that arrives just when the client closes the connection is not
    read any more.
    """
    counted = Counter(
        re.split(r"\W", doubt, maxsplit=1)[0] for each in found for doubt in each.requests
    )
    owed = Counter(api for api in proxy.unanswered(CLIENT) if api in {*APIS, "EndTxn"})
    assert not owed - counted, f"{owed} on the wire, counted {counted}"


@pytest.mark.long
def test_nothing_that_is_lost_is_missed_when_a_broker_dies_between_requests(replicated, table):
    """Nothing is on its way when it dies; what is sent to its successor may wait too long."""
    trial = patient(replicated)
    found = []
    for _ in range(ROUNDS):
        found.append(
            trial.judge(
                lambda: transact(trial, between=lambda: replicated.addressee("EndTxn").kill())
            )
        )
        replicated.cluster.restore()
        assert replicated.cluster.await_in_step()
    table.add("coordinator killed while all is answered", found, late=None)
    nothing_was_missed(replicated.proxy, found)


@pytest.mark.long
@pytest.mark.rounds
@at_length
def test_nothing_that_is_lost_is_missed_when_leaders_move(replicated, table):
    """The client closes the connection to a former coordinator, which may still owe an answer."""
    trial, cluster = patient(replicated), replicated.cluster
    names = [replicated.target, "__consumer_offsets", "__transaction_state"]
    moved: list[int] = []

    def move() -> None:
        moved.append(cluster.move_leaders(cluster.places(names)))

    found = [trial.judge(lambda: transact(trial, between=move)) for _ in range(3 * ROUNDS)]
    assert any(moved)
    table.add("leaders and coordinators moved", found, late=None)
    nothing_was_missed(replicated.proxy, found)


@pytest.mark.long
@pytest.mark.rounds
@at_length
def test_brokers_that_restart_between_transactions_are_doubted_by_no_count(replicated, table):
    found = []
    for broker in replicated.cluster.brokers * ROUNDS:
        broker.terminate()
        broker.start()
        assert replicated.cluster.await_in_step()
        found.append(replicated.trial.judge(lambda: transact(replicated.trial)))
    row = table.add("one broker restarted between transactions", found, late=False)
    assert row.requests == 0, [doubt for each in found for doubt in each.requests]
