"""One group of processes on topics of its own, behind a proxy: where directed faults strike.

A campaign strikes at random on three brokers; here each fault is aimed, because a loop that is
broken must be seen to fail at once. All stands share one broker.
"""

import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Self

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from hapax.sandbox import Sandbox
from hapax.sandbox.broker import metadata_client
from tests.fault.checking.judge import Topics
from tests.fault.controls.gate import FOLDER, Gate
from tests.fault.feeding.feed import Feeder
from tests.fault.feeding.ledger import Ledger
from tests.fault.members import Member
from tests.kit.faults import Rule
from tests.kit.managed_process import WorkerProcess
from tests.kit.proxy import FaultProxy
from tests.kit.topics import committed, ends, read_back
from tests.kit.waiting import reaches

PARTITIONS = 4
PATIENCE_S = 180.0
STOP_S = 30.0
SETTINGS = {
    "HAPAX_GROUP__SESSION_TIMEOUT": "6s",
    "HAPAX_TRANSACTION__TIMEOUT": "4s",
    "HAPAX_TRANSFORM": "tests.fault.business:split",
}


class Stand:
    """``with Stand(...) as stand``: topics, a feeder and members; nobody is started yet.

    claims whether the members drop events that were written twice upstream

    found  violations that are seen while it runs, by class; ``words`` is worth telling
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        sandbox: Sandbox,
        proxy: FaultProxy,
        folder: Path,
        settings: dict[str, str],
        *,
        claims: bool,
    ) -> None:
        self.name = name
        self.claims = claims
        self.proxy = proxy
        self.folder = folder
        self.found: dict[str, list[str]] = {}
        self.words: list[str] = []
        self.members: dict[str, Member] = {}
        self._command = command
        self._settings = settings
        self._sandbox = sandbox
        self._admin = metadata_client(sandbox.bootstrap_servers)
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        app = f"{self.name}-{uuid.uuid4().hex[:8]}"
        self.topics = Topics.create(self._sandbox, app, PARTITIONS, claims=self.claims)
        self._exits.callback(self._close)
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def _close(self) -> None:
        for member in self.members.values():
            member.close()
        self.proxy.clear()

    # -- input ----------------------------------------------------------------------------

    def feed(self, rate: int, seed: int) -> None:
        self.feeder = Feeder(
            self.topics.bootstrap,
            self.topics.source,
            self.folder,
            run=f"{self.name}-{seed}",
            partitions=PARTITIONS,
            rate=rate,
            seed=seed,
        )
        self._exits.callback(self.feeder.close)
        self.feeder.start()

    def drain(self, within_s: float, *, to_the_end: bool) -> Ledger:
        """Write nothing more, and let the members reach the last record; a hang is a violation.

        ``to_the_end``: behind the markers, too, which only the service does.
        """
        ledger = self.feeder.stop()
        last = self._last()

        def left(wanted: dict[int, int]) -> int:
            self.bring_back()
            found = self.committed()
            return sum(max(0, end - (found.get(number) or 0)) for number, end in wanted.items())

        if not reaches(lambda: left(last) == 0, within_s):
            self.note("hang", f"{left(last)} offsets left {within_s:.0f} s after the last record")
        elif to_the_end:
            whole = ends(self.topics.bootstrap, self.topics.source)
            reaches(lambda: left(whole) == 0, within_s)
        for member in self.members.values():
            self._stop(member)
        return ledger

    def _stop(self, member: Member) -> None:
        if not member.running:
            return
        try:
            code = member.terminate(STOP_S)
        except TimeoutExpired:
            self.note("undefined-exit", f"{member.instance} does not obey SIGTERM")
            return
        if code:
            self.note("undefined-exit", f"{member.instance}: SIGTERM ended in {code}")

    # -- members --------------------------------------------------------------------------

    def member(self, instance: str = "w-0") -> Member:
        """Start a member, all of whose requests go through the proxy."""
        gates = self.folder / "gates"
        gates.mkdir(exist_ok=True)
        environment = self.topics.environment(
            **{
                **self._sandbox.environment(),
                **SETTINGS,
                FOLDER: str(gates),
                "HAPAX_KAFKA__BOOTSTRAP_SERVERS": self.proxy.bootstrap,
                **self._settings,
            }
        )
        log = self.folder / f"{instance}.log"
        member = Member(WorkerProcess(environment, instance, log, self._command), log)
        self.members[instance] = member
        member.start()
        return member

    def gate(self) -> Gate:
        """Return the gate inside the business code of the first member."""
        return Gate(self.folder / "gates", "w-0")

    def client(self, instance: str = "w-0") -> str:
        return f"{self.topics.app}-{instance}"

    def arm(
        self, api: str, action: str, instance: str = "w-0", **more: int | bool | str | None
    ) -> Rule:
        rule = Rule(api, action, client_id=self.client(instance), **more)  # type: ignore[arg-type]
        return self.proxy.add(rule)

    def bring_back(self) -> int:
        """Start who has left by itself, as a supervisor does; return how many."""
        gone = [member for member in self.members.values() if member.surprise() is not None]
        for member in gone:
            member.start()
        return len(gone)

    # -- what can be seen -----------------------------------------------------------------

    def note(self, kind: str, text: str) -> None:
        self.found.setdefault(kind, []).append(text)

    def visible(self) -> int:
        """Return how far a committed reader of the outputs comes."""
        return self._reach(IsolationLevel.READ_COMMITTED)

    def written(self) -> int:
        """Return how far the outputs reach, open transactions among them."""
        return self._reach(IsolationLevel.READ_UNCOMMITTED)

    def _reach(self, isolation: IsolationLevel) -> int:
        places = [
            TopicPartition(topic, number)
            for topic in self.topics.outputs
            for number in range(PARTITIONS)
        ]
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = self._admin.list_offsets(dict.fromkeys(places, latest), isolation_level=isolation)
        return sum(answer.result().offset for answer in asked.values())

    def committed(self) -> dict[int, int | None]:
        return committed(self.topics.bootstrap, self.topics.app, self.topics.source)

    def _last(self) -> dict[int, int]:
        """Return per partition the offset behind the last record: markers may stand there."""
        return {
            record.partition: record.offset + 1
            for record in read_back(self.topics.bootstrap, self.topics.source)
        }

    def await_(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition, starting again who leaves meanwhile."""

        def or_back() -> bool:
            self.bring_back()
            return condition()

        assert reaches(or_back, PATIENCE_S), f"{self.name}: not within {PATIENCE_S:.0f} s: {what}"

    def await_progress(self, records: int = 50) -> None:
        before = self.visible()
        self.await_(lambda: self.visible() >= before + records, "further outputs")
