import hashlib
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from hapax.jars import Jar, locked
from hapax.sandbox import jars, machine
from hapax.sandbox.jars import REPOSITORY
from hapax.sandbox.machine import SandboxError

ARCHIVE = "registry-1.0-all.zip"
LOCKED = (
    Jar("org.example", "one", "1.0", hashlib.sha256(b"one").hexdigest()),
    Jar("org.example", "two", "2.0", hashlib.sha256(b"two").hexdigest()),
)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Maven, whose user has settings for it; two small jars are wanted."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for variable in (jars.VARIABLE, REPOSITORY, "M2_REPO"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").touch()
    want(LOCKED, monkeypatch)
    return folder


def want(locked_jars: tuple[Jar, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("hapax.jars", "hapax.sandbox.jars"):
        monkeypatch.setattr(f"{module}.locked", lambda _lock: locked_jars)


@pytest.fixture
def repository(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Maven repository as its users see it: the folder that a server on loopback serves."""
    folder = tmp_path / "repository"
    fill(folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        Thread(target=server.serve_forever).start()
        monkeypatch.setenv(REPOSITORY, f"http://127.0.0.1:{server.server_port}/")
        yield folder
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base says
        pass


def fill(repository: Path) -> None:
    for jar, content in zip(LOCKED, (b"one", b"two"), strict=True):
        place = repository / "org" / "example" / jar.artifact / jar.version
        place.mkdir(parents=True)
        (place / jar.file).write_bytes(content)


def script(folder: Path, name: str, *lines: str) -> None:
    tool = folder / name
    tool.write_text("\n".join(("#!/bin/sh", *lines, "")), encoding="utf-8")
    tool.chmod(0o755)


def a_maven(folder: Path, *lines: str) -> None:
    """Maven as far as it is used: its last argument names the output folder."""
    script(
        folder,
        "mvn",
        f'echo "$@" > {folder}/call',
        'for last; do :; done; out="${last#*=}"',
        *lines,
    )


@pytest.mark.parametrize(
    ("version", "count"), [("3.9.2", 56), ("4.1.2", 46), ("4.3.1", 46), ("4.4.0", 45)]
)
def test_each_lock_names_kafka_and_a_binding_for_its_log(version, count):
    wanted = locked(jars.kafka(version))
    files = {jar.file for jar in wanted}
    assert f"kafka_2.13-{version}.jar" in files
    assert "slf4j-simple-1.7.36.jar" in files
    assert len(files) == len(wanted) == count
    assert all(len(jar.sha256) == 64 for jar in wanted)


def test_every_version_that_is_held_has_a_lock_and_a_folder_of_its_own():
    held = [jars.kafka(version) for version in jars.VERSIONS]
    assert all(lock.path.is_file() for lock in held)
    assert len({jars.folder(lock) for lock in held}) == len(jars.VERSIONS)


def test_a_line_of_kafka_means_its_newest_and_the_environment_chooses_too(monkeypatch):
    monkeypatch.delenv(jars.VARIABLE, raising=False)
    assert jars.chosen() == jars.KAFKA_VERSION
    assert jars.chosen("3.9") == "3.9.2"
    monkeypatch.setenv(jars.VARIABLE, "4.1")
    assert jars.chosen() == "4.1.2"
    assert jars.chosen("4.3.1") == "4.3.1"


def test_a_version_that_is_not_held_is_refused_with_those_that_are():
    with pytest.raises(
        SandboxError, match=r"no Kafka 2\.8\. It has: 3\.9\.2, 4\.1\.2, 4\.3\.1, 4\.4\.0"
    ):
        jars.chosen("2.8")


@pytest.fixture
def heard(monkeypatch) -> list[tuple[object, ...]]:
    said: list[tuple[object, ...]] = []
    hearing = partial(nullcontext, lambda *words: said.append(words))
    monkeypatch.setattr(machine, "progress", hearing)
    return said


def test_maven_fetches_once_and_the_second_time_no_tool_is_called(path, capsys, heard):
    a_maven(
        path,
        "printf one > $out/one-1.0.jar; printf two > $out/two-2.0.jar",
        "echo 'Downloaded from somewhere: //x/one-1.0.jar (1 kB)'",
        "echo 'Downloaded from somewhere: //x/two-2.0.jar (1 kB)'",
    )

    folder = jars.fetched(jars.kafka())

    assert sorted(one.name for one in folder.iterdir()) == ["one-1.0.jar", "two-2.0.jar"]
    assert "dependency:copy-dependencies" in (path / "call").read_text(encoding="utf-8")
    assert "once: 2 files" in capsys.readouterr().err
    assert heard == [(f"Kafka {jars.KAFKA_VERSION}", done, 2) for done in (1, 2)]

    (path / "mvn").unlink()
    assert jars.fetched(jars.kafka()) == folder
    assert capsys.readouterr().err == ""


def fetched() -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in jars.fetched(jars.kafka()).iterdir()}


def assert_refused(tmp_path: Path, why: str, fetch: Callable[[], object] = fetched) -> None:
    """Fetching fails for this reason, and nothing is kept."""
    with pytest.raises(SandboxError, match=why):
        fetch()
    assert not [one for one in (tmp_path / "cache" / "hapax").iterdir() if one.is_dir()]


BOTH = {"one-1.0.jar": b"one", "two-2.0.jar": b"two"}


def test_without_maven_a_repository_is_asked_and_progress_is_reported(repository, heard):
    assert fetched() == BOTH
    assert heard == [(f"Kafka {jars.KAFKA_VERSION}", done, 2) for done in (1, 2)]


def test_without_settings_for_maven_it_is_not_asked(path, tmp_path, monkeypatch):
    a_maven(path, "exit 1")
    (tmp_path / ".m2" / "settings.xml").unlink()
    fill(tmp_path / ".m2" / "repository")
    assert fetched() == BOTH


def test_a_repository_that_is_named_goes_before_maven(path, repository):
    a_maven(path, "exit 1")
    assert fetched() == BOTH


def test_what_the_local_maven_repository_has_needs_no_network(path, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jgo", None)
    fill(tmp_path / ".m2" / "repository")
    assert fetched() == BOTH


def test_a_local_file_that_is_not_as_locked_is_fetched(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("M2_REPO", str(tmp_path / "local"))
    fill(tmp_path / "local")
    next((tmp_path / "local").rglob("two-2.0.jar")).write_bytes(b"tw")
    assert fetched() == BOTH


def test_a_file_that_the_repository_lacks_is_named_and_nothing_is_kept(repository, tmp_path):
    next(repository.rglob("two-2.0.jar")).unlink()
    assert_refused(tmp_path, r"two-2\.0\.jar: HTTP Error 404.*SANDBOX_MAVEN")


def test_a_file_that_is_not_as_locked_is_asked_for_again_and_then_refused(
    repository, tmp_path, monkeypatch
):
    asked: list[str] = []
    serve = Quiet.do_GET

    def listed(request: Quiet) -> None:
        asked.append(request.path)
        serve(request)

    monkeypatch.setattr(Quiet, "do_GET", listed)
    next(repository.rglob("two-2.0.jar")).write_bytes(b"evil")
    assert_refused(tmp_path, r"two-2\.0\.jar is not the file that kafka-4\.4\.0\.lock")
    assert len([one for one in asked if one.endswith("two-2.0.jar")]) == 3


def test_without_the_library_that_knows_maven_central_the_error_says_what_to_type(
    path, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "jgo.constants", None)
    assert_refused(tmp_path, r"pip install 'hapax-kafka\[sandbox\]'")


@pytest.fixture
def archive(path, tmp_path, monkeypatch):
    made = tmp_path / "made.zip"
    with zipfile.ZipFile(made, "w") as content:
        content.writestr("one-runner.jar", b"one")
        content.writestr("lib/two.jar", b"two")
    sha256 = hashlib.sha256(made.read_bytes()).hexdigest()
    want((Jar("org.example", "registry", "1.0", sha256, "all", "zip"),), monkeypatch)
    monkeypatch.setenv("PATH", f"{path}:/bin:/usr/bin")
    return made


def unpacked() -> list[str]:
    folder = jars.fetched(jars.registry())
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*.*"))


def test_of_an_archive_maven_is_asked_for_it_alone_and_its_content_is_kept(path, archive):
    a_maven(path, f"cp {archive} $out/{ARCHIVE}")
    assert unpacked() == ["lib/two.jar", "one-runner.jar"]
    call = (path / "call").read_text(encoding="utf-8")
    assert "dependency:copy -Dartifact=org.example:registry:1.0:zip:all " in call


def test_an_archive_of_a_repository_is_unpacked(repository, archive):
    place = repository / "org" / "example" / "registry" / "1.0"
    place.mkdir(parents=True)
    archive.rename(place / ARCHIVE)
    assert unpacked() == ["lib/two.jar", "one-runner.jar"]


def test_an_archive_that_is_not_as_locked_is_not_unpacked(path, archive, tmp_path):
    a_maven(path, f"cp {archive} $out/{ARCHIVE}; echo more >> $out/{ARCHIVE}")
    assert_refused(tmp_path, f"{ARCHIVE} is not the file that registry-3.0.9.lock", unpacked)


def test_the_lock_of_the_registry_names_one_archive():
    (wanted,) = locked(jars.registry())
    assert wanted.file == f"apicurio-registry-app-{jars.REGISTRY_VERSION}-all.zip"
    assert len(wanted.sha256) == 64


@pytest.mark.parametrize(
    ("delivered", "complaint"),
    [
        ("printf one > $out/one-1.0.jar; echo the mirror is away; exit 1", "the mirror is away"),
        ("printf one > $out/one-1.0.jar", "two-2.0.jar is not in"),
        (
            "printf one > $out/one-1.0.jar; printf evil > $out/two-2.0.jar",
            "two-2.0.jar is not the file that kafka-4.4.0.lock names",
        ),
    ],
    ids=["it fails", "a file is missing", "a file is another one"],
)
def test_a_tool_that_fails_or_brings_other_files_is_named_and_nothing_is_kept(
    path, tmp_path, delivered, complaint
):
    a_maven(path, delivered)
    assert_refused(tmp_path, complaint)
