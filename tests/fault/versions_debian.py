"""Servers of other releases of Debian, unpacked into a folder; nothing of them is installed."""

import subprocess
from pathlib import Path

from hapax.sandbox.machine import SandboxError
from tests.kit.commands import run_captured

_MIRROR = "http://deb.debian.org/debian"
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_LOADER = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
_TIMEOUT_S = 300.0
# What both servers load; libc comes with them, as that of this machine may be older.
_LIBRARIES = (
    *("libc6", "libstdc++6", "libgcc-s1", "libatomic1", "libjemalloc2", "liblzf1", "libssl3t64"),
    *("libsystemd0", "libcap2", "libzstd1", "zlib1g", "liblua5.1-0"),
)


def unpacked(server: str, suite: str, folder: Path) -> Path:
    """Return a program that runs redis-server or valkey-server of a release of Debian.

    apt-get verifies what it downloads against Debian's keys. Raises SandboxError: it cannot be had.
    """
    root = folder / f"{suite}-{server}"
    program = root / server
    if program.exists():
        return program
    archives = root / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    apt = _apt(root, suite)
    tools = server.replace("-server", "-tools")
    _run([*apt, "update"], archives)
    _run([*apt, "download", server, tools, *_LIBRARIES], archives)
    for archive in archives.glob("*.deb"):
        _run(["dpkg", "-x", str(archive), str(root / "files")], archives)
    files = root / "files"
    loader = next(iter(files.rglob("ld-linux-x86-64.so.2")), files / _LOADER)
    places = f"{files}/usr/lib/x86_64-linux-gnu:{files}/lib/x86_64-linux-gnu"
    program.write_text(
        "#!/bin/sh\n"
        f"exec {loader} --library-path {places}:/lib/x86_64-linux-gnu --argv0 {server} "
        f'{files}/usr/bin/{server} "$@"\n'
    )
    program.chmod(0o755)
    try:
        _run([str(program), "--version"], archives)
    except SandboxError:
        program.unlink()
        raise
    return program


def _apt(root: Path, suite: str) -> list[str]:
    """Return apt-get with lists and sources of its own."""
    sources = root / "sources.list"
    sources.write_text(f"deb [signed-by={_KEYS}] {_MIRROR} {suite} main\n")
    (root / "lists/partial").mkdir(parents=True, exist_ok=True)
    options = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": root / "lists",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": root / "cache",
    }
    return ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]


def _run(words: list[str], folder: Path) -> None:
    try:
        done = run_captured(words, cwd=folder, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"{words[0]}: {error}") from error
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise SandboxError(f"{Path(words[0]).name} ended with {done.returncode}: {' '.join(last)}")
