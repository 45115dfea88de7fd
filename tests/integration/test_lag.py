"""``hapax lag``: what it says of any group is what a reader of Java's client counts."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from typer.testing import CliRunner, Result

from hapax.commands.tree import app
from hapax.core.cluster_state import Right
from hapax.operations.offsets import READ_MAX
from tests.kit.behind import MANY, SITUATIONS, Behind, Stage, counted_by_java
from tests.kit.secured import SCRAM_PASSWORD, login
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hapax.sandbox import Sandbox

UNPLACED = {"no-offset", "recreated"}
"""The offset does not say where the reader continues, so its records are none, or all."""
OF_ANOTHER = "of-another-user"
MECHANISM = "SCRAM-SHA-256"


class Scene(NamedTuple):
    """How a broker is reached, and what Java counted there, by topic and partition."""

    settings: dict[str, str]
    java: dict[tuple[str, int], Behind]


@pytest.fixture(scope="module")
def told(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with ExitStack() as stack:
        stage = Stage(sandbox, stack)
        for topic, make in SITUATIONS.items():
            make(stage, topic)
        servers = sandbox.bootstrap_servers
        java = counted_by_java(
            ((topic, topic) for topic in SITUATIONS),
            {"bootstrap.servers": servers},
            tmp_path_factory.mktemp("java"),
        )
        yield Scene({"HAPAX_KAFKA__BOOTSTRAP_SERVERS": servers}, java)


class Guest(NamedTuple):
    """A user of a guarded broker that has no rights at first, and a group that is not its own."""

    sandbox: Sandbox
    name: str
    group: str
    settings: dict[str, str]

    def granted(self, *rights: tuple[str, str, str]) -> None:
        self.sandbox.rights.allow(self.name, *(Right(*words, "is read") for words in rights))

    def properties(self) -> dict[str, str]:
        """Return those of Java's client."""
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        password = SCRAM_PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
        jaas = f'{module} required username="{self.name}" password="{password}";'
        return {
            "bootstrap.servers": self.settings["HAPAX_KAFKA__BOOTSTRAP_SERVERS"],
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": jaas.replace("\\", "\\\\"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.sandbox.guard.authority.ca_file),
        }


@pytest.fixture
def guest(guarded: Sandbox, unique: Callable[[str], str]) -> Guest:
    name, group = unique("guest"), unique(OF_ANOTHER)
    guarded.rights.set_password(name, SCRAM_PASSWORD, MECHANISM)
    way = login(guarded, MECHANISM, USERNAME=name, PASSWORD=SCRAM_PASSWORD)
    with ExitStack() as stack:
        SITUATIONS["aborted-tail"](Stage(guarded, stack), group)
    return Guest(guarded, name, group, {f"HAPAX_{key}": text for key, text in way.items()})


def lag(settings: dict[str, str], *words: str) -> Result:
    return CliRunner().invoke(app, ["lag", *words], env=settings)


def figures(settings: dict[str, str], *words: str) -> dict[str, Any]:
    done = lag(settings, *words, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def await_refusal(guest: Guest, words: str, *more: str) -> None:
    """Wait until the command leaves with 3 and these words: rights come some milliseconds late."""

    def refused() -> bool:
        done = lag(guest.settings, guest.group, *more)
        return (done.exit_code, words in done.output) == (3, True)

    await_(refused, 30, lambda: lag(guest.settings, guest.group, *more).output)


@pytest.fixture
def scene(request: pytest.FixtureRequest, situation: str, tmp_path: Path) -> tuple[str, Scene]:
    """Return the group, which has the name of its topic, and the broker."""
    if situation != OF_ANOTHER:
        return situation, request.getfixturevalue("told")
    guest: Guest = request.getfixturevalue("guest")
    guest.granted(("GROUP", guest.group, "DESCRIBE"), ("TOPIC", guest.group, "READ"))
    java = counted_by_java([(guest.group, guest.group)], guest.properties(), tmp_path)
    return guest.group, Scene(guest.settings, java)


@pytest.mark.parametrize("situation", [*SITUATIONS, OF_ANOTHER])
def test_a_group_is_as_far_behind_as_a_reader_of_javas_client_counts(situation, scene):
    group, known = scene
    found = figures(known.settings, group, "--topic", group, "--exact")
    counted = {
        (one["topic"], one["partition"]): Behind(
            one["records_max"], one["aborted"], one["markers_or_removed"], one["open"]
        )
        for one in found["partitions"]
    }
    expected = {place: one for place, one in known.java.items() if place[0] == group}
    assert counted == expected
    total = sum(one.records for one in expected.values())
    assert found["records_max"] == total
    assert found["records_min"] == (0 if situation in UNPLACED else total)


def test_more_than_is_read_at_once_is_a_range_with_a_sentence(told):
    found = figures(told.settings, "many-records")
    assert found["records_min"] == READ_MAX
    assert found["records_max"] == MANY + 11  # ten aborted ones and a marker might be records
    shown = lag(told.settings, "many-records").stdout
    assert "At least 500,000 records, at most 1,000,011" in shown
    assert "--exact" in shown


def test_without_a_topic_all_are_shown_in_which_the_group_has_an_offset(told):
    found = figures(told.settings, "several-partitions")
    assert [(one["topic"], one["committed"]) for one in found["partitions"]] == [
        ("several-partitions", offset) for offset in (3, 0, 12, None)
    ]
    done = lag(told.settings, "no-offset")
    assert done.exit_code == 3
    assert "group no-offset has no committed offset in any topic" in done.output


def test_a_right_that_is_missing_is_named(guest):
    await_refusal(guest, f"grant DESCRIBE on group {guest.group}")
    guest.granted(("GROUP", guest.group, "DESCRIBE"))
    await_refusal(guest, f"group {guest.group} has no committed offset in any topic")
    await_refusal(guest, f"topic {guest.group} does not exist", "--topic", guest.group)
    guest.granted(("TOPIC", guest.group, "DESCRIBE"))
    await_refusal(guest, f"grant READ on topic {guest.group}")
