"""make scan: what the images hold, against advisories that somebody wrote into a file."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from deploy.scan import Component, UnreadableError, advisories, components, findings, main

if TYPE_CHECKING:
    from pathlib import Path

REDIS = Component("PyPI", "redis", "8.1.0")
CLIENTS = Component("Maven", "org.apache.kafka:kafka-clients", "3.9.2")


def advisory(*ranges: list[dict[str, str]], of: Component = REDIS, **more: Any) -> dict[str, Any]:
    """Return a record about a component, with a range of events each."""
    affected = {
        "package": {"ecosystem": of.ecosystem, "name": of.name},
        "ranges": [{"type": "ECOSYSTEM", "events": events} for events in ranges],
        "versions": more.pop("versions", []),
    }
    return {
        "id": "TEST-1",
        "modified": "2026-01-01T00:00:00Z",
        "affected": [affected],
        "summary": "It gives the key away.",
    } | more


@pytest.fixture
def bills(tmp_path: Path) -> Path:
    """Return a folder with the bills of two images, which both hold redis."""
    folder = tmp_path / "sbom"
    folder.mkdir()
    redis, clients = (
        "pkg:pypi/redis@8.1.0",
        "pkg:maven/org.apache.kafka/kafka-clients@3.9.2?type=jar",
    )
    for image, purls in (("worker", [redis]), ("spark", [redis, clients])):
        bill = {"components": [{"purl": purl} for purl in purls]}
        (folder / f"{image}.json").write_text(json.dumps(bill))
    return folder


def written(tmp_path: Path, *records: Any) -> Path:
    file = tmp_path / "advisories.json"
    file.write_text(json.dumps(records[0] if len(records) == 1 else records))
    return file


def fixed(tmp_path: Path, record: dict[str, Any], of: Component = REDIS) -> list[str]:
    return [one.fixed for one in findings([of], advisories(written(tmp_path, record)))]


def bounds(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{word: version} for word, version in pairs]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (bounds(("introduced", "0"), ("fixed", "8.1.1")), ["8.1.1"]),
        (bounds(("introduced", "8.1.0"), ("fixed", "9")), ["9"]),
        (bounds(("introduced", "0")), ["none"]),
        (bounds(("introduced", "0"), ("last_affected", "8.1")), ["none"]),
        (bounds(("introduced", "0"), ("limit", "*")), ["none"]),
        (bounds(("introduced", "0"), ("fixed", "8.1.0")), []),
        (bounds(("introduced", "0"), ("last_affected", "8.0.99")), []),
        (bounds(("introduced", "8.1.0.post1")), []),
        (bounds(("introduced", "0"), ("fixed", "7"), ("introduced", "8"), ("fixed", "10")), ["10"]),
        (bounds(("fixed", "7"), ("introduced", "9"), ("introduced", "0")), []),
        (bounds(("introduced", "0"), ("fixed", "8.1.0rc1")), []),
        (bounds(("introduced", "0"), ("fixed", "of no form")), ["cannot be compared"]),
    ],
)
def test_a_range_of_events_decides(events, expected, tmp_path):
    assert fixed(tmp_path, advisory(events)) == expected


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (bounds(("introduced", "0"), ("fixed", "3.9.10")), ["3.9.10"]),  # no text is compared
        (bounds(("introduced", "0"), ("fixed", "3.9.2-rc1")), []),
        (bounds(("introduced", "3.9.2-rc1"), ("fixed", "4.0.0-rc1")), ["4.0.0-rc1"]),
        (bounds(("introduced", "0"), ("last_affected", "3.9.2.0")), ["none"]),
        (bounds(("introduced", "3.10")), []),
    ],
)
def test_jars_are_compared_by_the_rules_of_maven(events, expected, tmp_path):
    assert fixed(tmp_path, advisory(events, of=CLIENTS), CLIENTS) == expected


def test_a_version_that_is_listed_is_affected_whatever_the_ranges_say(tmp_path):
    other = bounds(("introduced", "0"), ("fixed", "2"))
    assert fixed(tmp_path, advisory(other, versions=["8.0.0", "8.1.0"])) == ["none"]
    assert fixed(tmp_path, advisory(other, versions=["8.0.0"])) == []


def test_a_range_of_commits_alone_is_left_to_people(tmp_path):
    record = advisory()
    record["affected"][0]["ranges"] = [{"type": "GIT", "events": [{"introduced": "0"}]}]
    assert fixed(tmp_path, record) == ["cannot be compared"]


def test_other_packages_and_withdrawn_advisories_say_nothing(tmp_path):
    every = bounds(("introduced", "0"))
    jar = Component("Maven", "redis", "8.1.0")
    other = Component("PyPI", "redis-py", "8.1.0")
    assert fixed(tmp_path, advisory(every, of=other)) == []
    assert fixed(tmp_path, advisory(every, of=jar)) == []
    assert fixed(tmp_path, advisory(every, withdrawn="2026-02-01T00:00:00Z")) == []
    spelled = Component("PyPI", "Redis", "8.1.0")
    assert fixed(tmp_path, advisory(every, of=spelled)) == ["none"]


def test_findings_are_a_table_and_exit_code_1(bills, tmp_path, capsys):
    jar = advisory(bounds(("introduced", "0"), ("fixed", "3.9.3")), of=CLIENTS, id="TEST-2")
    every = advisory(bounds(("introduced", "0")), aliases=["CVE-1", "CVE-2"])
    assert main([str(bills), str(written(tmp_path, every, jar))]) == 1
    said = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    assert [[cell.strip() for cell in line if cell.strip()] for line in said] == [
        ["component", "image", "advisory", "also known as", "fixed in", "summary"],
        [
            "org.apache.kafka:kafka-clients 3.9.2",
            "spark",
            "TEST-2",
            "3.9.3",
            "It gives the key away.",
        ],
        [
            "redis 8.1.0",
            "spark,worker",
            "TEST-1",
            "CVE-1,CVE-2",
            "none",
            "It gives the key away.",
        ],
        ["2 components, 2 advisories: 2 findings"],
    ]


def test_a_folder_and_an_archive_are_read_as_a_file_is(bills, tmp_path):
    file = written(tmp_path, advisory(bounds(("introduced", "0"))))
    folder = tmp_path / "many/PyPI"
    folder.mkdir(parents=True)
    file.rename(folder / "TEST-1.json")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(folder / "TEST-1.json", "TEST-1.json")
    for place in (folder.parent, tmp_path / "all.zip"):
        assert main([str(bills), str(place)]) == 1


def test_nothing_found_is_exit_code_0(bills, tmp_path, capsys):
    fine = advisory(bounds(("introduced", "0"), ("fixed", "8.1.0")))
    assert main([str(bills), str(written(tmp_path, fine))]) == 0
    assert capsys.readouterr().out == "2 components, 1 advisories: 0 findings\n"


def test_without_an_advisory_file_that_is_said_loudly(bills, capsys):
    assert main([str(bills)]) == 0
    assert "NO ADVISORY FILE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "no record of OSV"),
        (b'{"name": "redis"}', "no record of OSV"),
        (b'{"id": "TEST-1", "modified": "", "affected": [{"ranges": [7]}]}', "no record of OSV"),
        (b"[]", "has no advisory"),
    ],
)
def test_a_file_that_is_no_advisory_is_an_error_that_names_it(
    content, reason, bills, tmp_path, capsys
):
    file = tmp_path / "wrong.json"
    file.write_bytes(content)
    assert main([str(bills), str(file)]) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert "wrong.json" in said


def test_what_is_not_there_is_an_error_too(bills, tmp_path):
    assert main([str(bills), str(tmp_path / "nothing.json")]) == 2
    (tmp_path / "empty").mkdir()
    assert main([str(bills), str(tmp_path / "empty")]) == 2
    assert main([str(tmp_path / "empty"), str(tmp_path / "nothing.json")]) == 2
    (tmp_path / "empty/worker.json").write_text("{}")
    with pytest.raises(UnreadableError, match="no bill of materials"):
        components(tmp_path / "empty")
