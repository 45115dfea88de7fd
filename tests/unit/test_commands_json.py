"""The words of --json: what programs read of each command is what it always was."""

import json
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from hapax.cluster.lag import ReaderLag
from hapax.cluster.offset_moves import Move, Placed, Skip, Translated
from hapax.cluster.partition_offsets import LogOffsets
from hapax.commands.tree import app
from hapax.core.offset_commit import CommittedMetadata
from hapax.core.ports import Owned, Stuck
from hapax.core.records import Coordinates, Record
from hapax.operations.audit.result import Audit, InputBounds, InputFindings, total
from hapax.operations.claims import Adoption, Rebuilt
from hapax.operations.dead_letters import FoundDeadLetters, ReplaySummary
from hapax.operations.doctor.check import Finding, Verdict
from hapax.operations.doctor.examination import Examination
from hapax.operations.offsets import Look
from hapax.operations.trace import Effect, Sighting, Within
from hapax.processing.dead_letters import DeadLetter
from tests.kit.doctor import healthy
from tests.unit.test_settings import REQUIRED

GOLDEN = Path(__file__).with_name("commands.json")
ENVIRON = {
    **REQUIRED,
    "HAPAX_DEAD_LETTER__TOPIC": "dead",
    "HAPAX_DEDUP__REDIS_URL": "redis://r:1/0",
    "HAPAX_INPUT__TOPICS": "in",
    "HAPAX_OUTPUT__TOPIC": "out",
}
LOG = LogOffsets(10, 5_000, 6_000)
RECORD = Record("dead", 0, 17, b"k\xff", b'{"a": 1}', (("h", None), ("b", b"\x00\xff")), 1_000)
LETTER = DeadLetter(
    record=RECORD,
    readable=True,
    source=Coordinates("in", 0, 3),
    original=Coordinates("in", 0, 2),
    event_id=b"e-1",
    error="ValueError: no",
    attempts=3,
    app="orders",
)
LOOKS = [
    Look(
        topic="in", partition=0, log=LOG, committed=2_000, position=2_000, oldest_ms=1_999_000_000
    ),
    Look(topic="in", partition=1, log=LOG, committed=None, position=None, empty=True),
    Look(topic="in", partition=2, log=LOG, committed=4, position=4, stuck=Stuck(4, "crc")),
]
MOVES = [
    Move(
        placed=Placed(
            topic="in",
            partition=number,
            log=LOG,
            committed=committed,
            position=committed,
            beside=CommittedMetadata(),
        ),
        offset=offset,
        remark="odd" * number,
    )
    for number, committed, offset in ((0, 2_000, 4_711), (1, None, 20))
]
LAGS = [
    ReaderLag("in", 0, LOG, 20, 1_500, aborted=7, markers=3),
    ReaderLag("in", 1, LOG, None, 9, uncounted=1_000),
    ReaderLag("in", 2, LOG, 5, 9, problem="cannot be read"),
]
INPUTS = [
    InputFindings(
        bounds=InputBounds(
            topic="in", partition=0, low=0, start=0, until=9, committed=committed, end=10
        ),
        counts={"records": 9_000, "missing": missing, "waiting": missing},
    )
    for committed, missing in ((9, 0), (None, 2))
]
AUDIT = Audit(
    app="a",
    compare="values",
    inputs=INPUTS,
    outputs=[],
    totals=total(INPUTS, {"orphaned": 1}),
    examples={"missing": ["in/0/3"]},
    remarks=["this and that"],
)
SIGHTINGS = [
    Sighting(
        at=Coordinates("in", 0, 3),
        record=RECORD,
        event_id=b"e-1",
        owners={"key": Coordinates("in", 0, 2)},
        original=Coordinates("in", 0, 2),
        after=4,
        effects=[
            Effect(
                at=Coordinates("out", 0, number),
                source=Coordinates("in", 0, 3),
                event_id=b"e-1",
                part=f"{number + 1}/2",
                error="ValueError: no" * number,
                visible=not number,
            )
            for number in (0, 1)
        ],
    ),
    Sighting(
        at=Coordinates("in", 0, 5),
        record=None,
        event_id=b"",
        owners=None,
        undecodable="it cannot be decoded",
        within=Within(instance="i", assigned=True, read=True, in_call_s=2.5),
    ),
]
SKIPS = {
    3: Skip(at=Coordinates("in", 0, 3), next=4, record=RECORD),
    7: Skip(at=Coordinates("in", 0, 7), next=10, record=None, reason="crc"),
}
FINDINGS = (
    Finding("durability", Verdict.PASS, "out: 3 replicas"),
    Finding("bootstrap", Verdict.FAIL, "away", "start it", now=True, cluster="k:1"),
)
OWNERS = {"key": Owned(Coordinates("in", 0, 2), 90_000)}


def moving() -> SimpleNamespace:
    adopting = SimpleNamespace(remarks=lambda: ["odd"], await_empty=lambda _tell: None)
    return SimpleNamespace(
        set=lambda *_: MOVES,
        rewind=lambda *_, **__: MOVES,
        skip=lambda at: (SKIPS[at.offset], MOVES[0]),
        adopt=lambda _group: (MOVES, adopting),
        members=lambda: {"i-0": "/10.0.0.1"},
        carry_out=lambda *_, **__: 5,
        state=lambda *_, **__: SimpleNamespace(remark=""),
        dead_letter=lambda *_: True,
    )


DEAD_LETTERS = SimpleNamespace(
    topic="dead",
    look=lambda *_: FoundDeadLetters(
        letters=[(LETTER, True)], count=2, replayed=1, reasons={"ValueError": 2}
    ),
    named=lambda *_: (LETTER, False),
)
REPLAY = ReplaySummary(replayed=2, replayed_before=1, left={"no place": 3})
CLAIMS = SimpleNamespace(
    owners=lambda *_: OWNERS,
    forget=lambda *_: True,
    rebuild=lambda *_: Rebuilt(records=9, claimed=4, older=1),
)
ADOPTED = Adoption(here="here", before="there", claims=True, offsets={("in", 0): 4})
ANSWERS: dict[str, Any] = {
    "claims.Adopting": SimpleNamespace(look=lambda: ADOPTED, adopt=lambda: ADOPTED),
    "audit.topics.audit": AUDIT,
    "claims.claims": nullcontext(CLAIMS),
    "dead_letters.DeadLetters": nullcontext(DEAD_LETTERS),
    "doctor.examination.examine": Examination(healthy(), FINDINGS),
    "moving.Moving": nullcontext(moving()),
    "offsets.Looks": nullcontext(SimpleNamespace(look=lambda: LOOKS)),
    "offsets.reader_lags": LAGS,
    "dead_letters.Replay": nullcontext(SimpleNamespace(preview=lambda: REPLAY, run=lambda: REPLAY)),
    "reading.consume": [[RECORD]],
    "trace.Trace": nullcontext(SimpleNamespace(place=lambda *_: SIGHTINGS)),
    "offsets.commit_translated": None,
    "offsets.translated": [
        Translated(
            topic="in", partition=0, committed=9, target="m", offset=7_000, record=True, first=3
        ),
        Translated(
            topic="in", partition=1, committed=9, target="m", offset=3, record=False, first=3
        ),
    ],
}
COMMANDS = [
    "audit",
    "claims adopt --dry-run",
    "claims adopt --yes",
    "claims forget e-1 --yes",
    "claims rebuild --yes",
    "claims show e-1",
    "consume in",
    "dead-letters list",
    "dead-letters replay --dry-run",
    "dead-letters replay --yes",
    "dead-letters show dead/0/17",
    "doctor",
    "doctor --acls",
    "lag billing",
    "offsets",
    "offsets adopt other --yes",
    "offsets rewind --by 1",
    "offsets set in/0/4711",
    "offsets set in/0/4711 --yes",
    "offsets skip in/0/3",
    "offsets skip in/0/7 --dead-letter --yes",
    "offsets translate --group billing",
    "offsets translate --group billing --yes --to-group b",
    "trace in/0/3",
]


@pytest.fixture
def said(monkeypatch):
    for place, answer in ANSWERS.items():
        monkeypatch.setattr(f"hapax.operations.{place}", lambda *_, answer=answer, **__: answer)
    monkeypatch.setattr(time, "time", lambda: 2_000_000.0)
    return lambda command: CliRunner().invoke(app, command.split(), env=ENVIRON)


def test_every_command_says_to_programs_what_it_always_said(said):
    found = {each: json.loads(said(f"{each} --json").stdout) for each in COMMANDS}
    assert found == json.loads(GOLDEN.read_text())


@pytest.mark.parametrize("command", COMMANDS)
def test_people_get_the_same_as_text(said, command):
    done = said(command)
    assert done.exit_code == (command in {"audit", "doctor"}), done.output
    assert done.stdout.strip()
