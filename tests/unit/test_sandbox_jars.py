import hashlib
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from hapax.jars import Jar, locked
from hapax.sandbox import jars, machine
from hapax.sandbox.machine import SandboxError

ARCHIVE = "registry-1.0-all.zip"
LOCKED = (
    Jar("org.example", "one", "1.0", hashlib.sha256(b"one").hexdigest()),
    Jar("org.example", "two", "2.0", hashlib.sha256(b"two").hexdigest()),
)


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A machine without Maven and PySpark, and an empty cache; two small jars are wanted."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(jars.VARIABLE, raising=False)
    monkeypatch.setattr(machine, "find_spec", lambda _: None)
    for module in ("hapax.jars", "hapax.sandbox.jars"):
        monkeypatch.setattr(f"{module}.locked", lambda _lock: LOCKED)
    return folder


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


def kept(tmp_path: Path) -> list[str]:
    return sorted(one.name for one in (tmp_path / "cache" / "hapax").iterdir() if one.is_dir())


@pytest.mark.parametrize(("version", "count"), [("3.9.2", 56), ("4.1.2", 46), ("4.3.1", 46)])
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
    with pytest.raises(SandboxError, match=r"no Kafka 2\.8\. It has: 3\.9\.2, 4\.1\.2, 4\.3\.1"):
        jars.chosen("2.8")


def test_maven_fetches_once_and_the_second_time_no_tool_is_called(path, tmp_path, capsys):
    a_maven(
        path,
        "printf one > $out/one-1.0.jar; printf two > $out/two-2.0.jar",
        "echo 'Downloaded from somewhere: //x/one-1.0.jar (1 kB)'",
        "echo 'Downloaded from somewhere: //x/two-2.0.jar (1 kB)'",
    )

    folder = jars.fetched(jars.kafka())

    assert sorted(one.name for one in folder.iterdir()) == ["one-1.0.jar", "two-2.0.jar"]
    assert "dependency:copy-dependencies" in (path / "call").read_text(encoding="utf-8")
    said = capsys.readouterr().err
    assert "once: 2 files" in said
    assert f"Kafka {jars.KAFKA_VERSION}: 2 of 2" in said

    (path / "mvn").unlink()
    assert jars.fetched(jars.kafka()) == folder
    assert capsys.readouterr().err == ""


def test_the_ivy_inside_pyspark_does_without_maven(path, tmp_path, monkeypatch):
    pyspark = tmp_path / "pyspark"
    (pyspark / "jars").mkdir(parents=True)
    (pyspark / "jars" / "ivy-2.5.3.jar").touch()
    spec = SimpleNamespace(origin=str(pyspark / "__init__.py"))
    monkeypatch.setattr(machine, "find_spec", lambda name: spec if name == "pyspark" else None)
    monkeypatch.setattr(machine, "java", lambda: path / "java")
    script(
        path,
        "java",
        f'echo "$@" > {path}/call; for last; do :; done; out="${{last%/*}}"',
        "printf one > $out/one-1.0.jar; printf two > $out/two-2.0.jar",
    )

    assert len(list(jars.fetched(jars.kafka()).iterdir())) == 2
    call = (path / "call").read_text(encoding="utf-8")
    assert "-jar" in call
    assert "ivy-2.5.3.jar -m2compatible" in call

    settings = tmp_path / ".ivy2" / "ivysettings.xml"
    settings.parent.mkdir()
    settings.touch()
    for jar in jars.folder(jars.kafka()).iterdir():
        jar.unlink()
    jars.folder(jars.kafka()).rmdir()
    jars.fetched(jars.kafka())
    assert f"-settings {settings}" in (path / "call").read_text(encoding="utf-8")


@pytest.fixture
def archive(path, tmp_path, monkeypatch):
    """An archive that is wanted in the place of jars."""
    made = tmp_path / "made.zip"
    with zipfile.ZipFile(made, "w") as content:
        content.writestr("one-runner.jar", b"one")
        content.writestr("lib/two.jar", b"two")
    sha256 = hashlib.sha256(made.read_bytes()).hexdigest()
    wanted = (Jar("org.example", "registry", "1.0", sha256, "all", "zip"),)
    for module in ("hapax.jars", "hapax.sandbox.jars"):
        monkeypatch.setattr(f"{module}.locked", lambda _lock: wanted)
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


def test_of_an_archive_ivy_is_asked_without_its_pom_and_its_content_is_kept(
    path, archive, monkeypatch
):
    monkeypatch.setattr(machine, "maven", lambda: None)
    monkeypatch.setattr(machine, "ivy", lambda: path / "ivy.jar")
    monkeypatch.setattr(machine, "java", lambda: path / "java")
    script(
        path,
        "java",
        f'cat "$4" "$6" > {path}/call; for last; do :; done; out="${{last%/*}}"',
        f"cp {archive} $out/{ARCHIVE}",
    )
    assert unpacked() == ["lib/two.jar", "one-runner.jar"]
    call = (path / "call").read_text(encoding="utf-8")
    assert 'usepoms="false"' in call
    assert 'type="zip" ext="zip" m:classifier="all"' in call


def test_an_archive_that_is_not_as_locked_is_not_unpacked(path, archive, tmp_path):
    a_maven(path, f"cp {archive} $out/{ARCHIVE}; echo more >> $out/{ARCHIVE}")
    with pytest.raises(SandboxError, match=f"{ARCHIVE} is not the file that registry-3.0.9.lock"):
        unpacked()
    assert kept(tmp_path) == []


def test_the_lock_of_the_registry_names_one_archive():
    (wanted,) = locked(jars.registry())
    assert wanted.file == f"apicurio-registry-app-{jars.REGISTRY_VERSION}-all.zip"
    assert len(wanted.sha256) == 64


def test_without_maven_and_pyspark_the_error_says_what_to_type(path, tmp_path):
    with pytest.raises(SandboxError, match="Run: sudo apt-get install maven"):
        jars.fetched(jars.kafka())
    assert kept(tmp_path) == []


def test_a_tool_that_fails_is_heard_and_leaves_nothing(path, tmp_path):
    a_maven(path, "printf one > $out/one-1.0.jar; echo the mirror is away; exit 1")
    with pytest.raises(SandboxError, match="the mirror is away"):
        jars.fetched(jars.kafka())
    assert kept(tmp_path) == []


@pytest.mark.parametrize(
    ("delivered", "complaint"),
    [
        ("printf one > $out/one-1.0.jar", "two-2.0.jar is not in"),
        (
            "printf one > $out/one-1.0.jar; printf evil > $out/two-2.0.jar",
            "two-2.0.jar is not the file that kafka-4.3.1.lock names",
        ),
    ],
)
def test_what_is_not_as_locked_is_refused_and_not_kept(path, tmp_path, delivered, complaint):
    a_maven(path, delivered)
    with pytest.raises(SandboxError, match=complaint):
        jars.fetched(jars.kafka())
    assert kept(tmp_path) == []
