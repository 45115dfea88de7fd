"""Archives of classes: where they are, and that one that was cut off is never used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hapax.sandbox import archiving, class_archive, jars
from hapax.sandbox.archiving import archive_kafka, archive_spark
from hapax.sandbox.machine import SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable

Recorded = tuple[str, ...]


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where both archives are; nothing is there yet."""
    found = tmp_path / "archives" / "one.jsa"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jars, "fetched", lambda _lock: tmp_path)
    monkeypatch.setattr(class_archive, "of_jars", lambda _folder: found)
    monkeypatch.setattr(class_archive, "of_spark", lambda: found)
    return found


def target(recording: Recorded) -> Path:
    [name] = [word for word in recording if "ArchiveClassesAtExit" in word]
    return Path(name.partition("=")[2])


def writing(calls: list[Recorded]) -> Callable[..., None]:
    """A run whose JVM writes its archive."""

    def run(*words: object) -> None:
        recording = words[-1]
        assert isinstance(recording, tuple)
        calls.append(recording)
        target(recording).write_bytes(b"classes")

    return run


def cut_off(*words: object) -> None:
    recording = words[-1]
    assert isinstance(recording, tuple)
    target(recording).write_bytes(b"cla")
    raise SandboxError("killed")


KINDS = pytest.mark.parametrize(
    ("make", "run"), [(archive_kafka, "_run_kafka"), (archive_spark, "_run_spark")]
)


@KINDS
def test_an_archive_is_made_once_and_then_used(make, run, archive, monkeypatch):
    calls: list[Recorded] = []
    monkeypatch.setattr(archiving, run, writing(calls))
    assert class_archive.options(archive) == ()
    assert make() == make() == archive
    assert len(calls) == 1
    assert f"-XX:SharedArchiveFile={archive}" in class_archive.options(archive)
    assert list(archive.parent.iterdir()) == [archive]


@KINDS
def test_an_archive_whose_jvm_was_killed_is_not_kept(make, run, archive, monkeypatch):
    monkeypatch.setattr(archiving, run, cut_off)
    with pytest.raises(SandboxError, match="killed"):
        make()
    assert list(archive.parent.iterdir()) == []


@KINDS
def test_a_java_that_writes_none_is_named(make, run, archive, monkeypatch):
    monkeypatch.setattr(archiving, run, lambda *_words: None)
    with pytest.raises(SandboxError, match="does not archive classes"):
        make()
    assert not archive.exists()


@KINDS
def test_a_folder_that_cannot_be_written_is_named(make, run, archive, monkeypatch):
    monkeypatch.setattr(archiving, run, writing([]))
    archive.parent.touch()
    with pytest.raises(SandboxError, match="archives cannot be written"):
        make()


def test_archives_of_environments_that_are_gone_do_not_pile_up(archive, monkeypatch):
    archive.parent.mkdir()
    for number in range(6):
        (archive.parent / f"{number}.jsa").touch()
    monkeypatch.setattr(archiving, "_run_spark", writing([]))
    archive_spark()
    assert archive.exists()
    assert len(list(archive.parent.iterdir())) == 4
