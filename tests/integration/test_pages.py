"""What the pages have people type, typed as it is."""

import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import threading
from contextlib import closing
from http.server import ThreadingHTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from hapax.sandbox.processes import Ports
from tests.kit.commands import run_captured
from tests.kit.night import Desk, ran
from tests.kit.pages import section, type_section
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.proof import at_length
from tests.kit.routes import a_route
from tests.kit.topics import Given, delete_group

# -- The commands of the pages that a newcomer types, read from the pages and typed as they are.


ROOT = Path(__file__).parents[2]
COMMANDS_MAX = 6
"""From a checkout to a record that went through a function of one's own."""
WITHIN_S = 240

NOT_HERE = (
    "docker ",
    "pip install --require-hashes",
    "pip install --no-deps",
    "hapax run",
    "doctor",
)
"""Commands that need a container engine, a page of their own in the tests (test_wheel.py), or a
service that runs elsewhere."""


def pages_part(page: str, first: str, last: str) -> str:
    text = (ROOT / page).read_text()
    return f"## {first}\n" + text.partition(f"\n## {first}\n")[2].partition(f"\n## {last}\n")[0]


def steps(text: str) -> list[str]:
    """Return what a page has people do, in order: commands, and ``cat`` for a file it shows."""
    found: list[str] = []
    for block in re.compile(
        r"(?ms)(Replace `(?P<file>[\w.]+)`:\n\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$"
        r"(?P<again>\n\nand run the last command again)?"
    ).finditer(text):
        if block["kind"] == "console":
            found += [line.removeprefix("$ ") for line in block["text"].splitlines()]
        elif block["file"]:
            last = found[-1]
            found.append(f"cat > {block['file']} <<'END'\n{block['text']}END")
            found += [last] if block["again"] else []
    return [step for step in found if not any(word in step for word in NOT_HERE)]


def script(wanted: list[str]) -> str:
    """Return the commands for one shell; a service that stays runs until the last has been typed.

    Its terminal stays open and silent meanwhile, and it is known to be ready by its log.
    """
    lines = ["set -eu", "say() { printf '\\n$ %s\\n' \"$1\"; }"]
    for step in wanted:
        lines.append(f"say {shlex.quote(step.splitlines()[0])}")
        if step == "hapax dev":
            lines += [
                "mkfifo terminal; hapax dev <terminal >dev.out 2>dev.err & dev=$!; exec 9>terminal",
                "until grep -q service_ready dev.err; do kill -0 $dev; sleep 0.2; done",
            ]
        else:
            lines.append(step)
    if "hapax dev" in wanted:
        lines += ["say 'Ctrl-C'", "kill -TERM $dev", "wait $dev", "cat dev.out"]
    return "\n".join(lines)


HIDDEN = re.compile(
    r"java|jar|keytool|jcmd|mvn|redis|valkey|gcc|[cg]\+\+|cc$|c89|c99|clang|tcc|.*-gcc|uvx?$|cjdk|helm"
)


def bare_programs(folder: Path) -> Path:
    """Return a folder for PATH: what is on it here, without what HIDDEN names."""
    programs = folder / "bin"
    programs.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if not HIDDEN.match(program.name) and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    (programs / "python3").unlink(missing_ok=True)
    (programs / "python3").symlink_to(sys._base_executable)  # type: ignore[attr-defined] # typeshed does not know it
    return programs


def typed(text: str, tmp_path: Path, *, cold: bool = False) -> subprocess.CompletedProcess[str]:
    """Type a page in a new checkout, on ports that are free here, with Python and no servers.

    ``cold`` is a user who never fetched anything: no library and no Kafka is in a cache.
    """
    checkout = tmp_path / "checkout"
    subprocess.run(["/usr/bin/env", "git", "clone", "--quiet", ROOT, checkout], check=True)
    with closing(Ports()) as ports:
        kafka, store, page = (ports.reserve() for _ in range(3))
    # What says where packages are from, and the caches, are the user's; the ports count more than
    # those of settings.env, which another user of this machine may have taken.
    kept = {"HOME", "LANG", "XDG_CACHE_HOME"}
    given = {k: v for k, v in os.environ.items() if k in kept or k.startswith(("PIP_", "UV_"))}
    environ = given | {
        "PATH": str(bare_programs(tmp_path)),
        "HAPAX_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{kafka}",
        "HAPAX_DEDUP__REDIS_URL": f"redis://127.0.0.1:{store}/0",
        "HAPAX_TELEMETRY__PORT": str(page),
    }
    if cold:
        environ |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PIP_NO_CACHE_DIR": "1"}
    return run_captured(
        ["/bin/bash", "-c", script(steps(text))],
        cwd=checkout,
        env=environ,
        stdin=subprocess.DEVNULL,
        timeout=WITHIN_S * 3,
    )


def test_a_function_of_ones_own_is_a_few_commands_away():
    *first, edited, again = steps(pages_part("docs/quickstart.md", "Six commands", "Stay with it"))
    assert edited.startswith("cat > pipeline.py ")
    assert again == first[-1] == "hapax dev --once < events.jsonl"
    assert len(first) <= COMMANDS_MAX
    assert steps(pages_part("README.md", "Quickstart", "What it promises"))[: len(first)] == first


@pytest.mark.long
@pytest.mark.timeout(WITHIN_S * 4)
def test_the_quickstart_of_the_readme_works_as_it_is_typed(tmp_path):
    done = typed(pages_part("README.md", "Quickstart", "What it promises"), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
    assert len(re.findall(r"(?m)^orders-(?:out|dead)/", done.stdout)) == 3


@pytest.mark.long
@pytest.mark.timeout(WITHIN_S * 4)
@pytest.mark.rounds
@at_length
def test_the_quickstart_works_as_it_is_typed_and_in_four_minutes(tmp_path):
    began_s = busy_s()
    page = pages_part("docs/quickstart.md", "Six commands", "Locked libraries")
    done = typed(page, tmp_path, cold=True)
    took_s = busy_s() - began_s
    assert done.returncode == 0, done.stdout + done.stderr
    parts = done.stdout.split("\n$ ")
    first, own = (part for part in parts if part.startswith("hapax dev --once"))
    [shown] = re.findall(r"(?ms)^```\n(orders-dead.*?)^```$", page)
    assert lines_of(first) == lines_of(shown)
    assert [key for key, _value in lines_of(own)] == ["a-1", "a-2", "a-3", "a-4"]
    [consumed] = (part for part in parts if re.match(r"hapax \S+ \S+ consume", part))
    assert "hapax-source: orders/" in consumed
    assert list((tmp_path / "cache/hapax").glob("kafka-*")), "Kafka was not fetched by the page"
    assert took_s <= WITHIN_S / 2, f"{took_s:.0f} s of a processor"


def busy_s() -> float:
    """Return the processor time of what this process has started.

    Clocks tell of the other tests on this machine, not of the page; waits on a network, half of
    what the page may take, are not in it.
    """
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def lines_of(text: str) -> list[tuple[str, str]]:
    """Return key and value of each line of output, sorted: partitions and offsets may differ."""
    lines = [line.split("  ", 2) for line in text.splitlines() if line.startswith("orders-")]
    return sorted((line[1], line[2]) for line in lines)


# -- The examples: their tests pass, and the commands of their pages do what is written there.


EXAMPLES = sorted(file.parent for file in (ROOT / "examples").glob("*/settings.env"))
BIN = Path(sys.executable).parent
REDIS = "HAPAX_DEDUP__REDIS_URL"


@pytest.fixture
def example_environ():
    """The environment, which counts more than settings.env: ports that are free here."""
    with closing(Ports()) as ports:
        kafka, store = ports.reserve(), ports.reserve()
    return os.environ | {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "HAPAX_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{kafka}",
        REDIS: f"redis://127.0.0.1:{store}/0",
        "HAPAX_TELEMETRY__PORT": "0",
    }


@pytest.fixture
def names():
    """The service of the enrichment, at a free port."""
    spec = spec_from_file_location("names_of_example", ROOT / "examples/enrichment/names.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    with ThreadingHTTPServer(("127.0.0.1", 0), module.Names) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def commands(example: Path) -> list[str]:
    """Return the commands of the page's first block."""
    blocks = re.findall(r"(?ms)^```console\n(.*?)^```$", (example / "README.md").read_text())
    return [line.removeprefix("$ ") for line in blocks[0].splitlines()]


def test_every_example_is_listed_and_has_all_its_files():
    page = (ROOT / "examples/README.md").read_text()
    assert re.findall(r"\[(\w+)\]\(\1/README\.md\)", page) == sorted(
        (example.name for example in EXAMPLES), key=page.index
    )
    for example in EXAMPLES:
        assert {file.name for file in example.iterdir()} >= {
            "README.md", "test_pipeline.py", "settings.env", "events.jsonl", "expected.txt",
            "pytest.ini",
        }  # fmt: skip


def with_long_ones(word: str, *marks: pytest.MarkDecorator) -> list[Any]:
    """Return all examples as parameters; those with the word in their names take a while."""
    long = [pytest.mark.long, *marks]
    return [
        pytest.param(example, id=example.name, marks=long if word in example.name else [])
        for example in EXAMPLES
    ]


@pytest.mark.rounds
@pytest.mark.parametrize("example", with_long_ones("stateful", at_length))
def test_the_tests_of_an_example_pass(example, example_environ):
    assert commands(example)[0] == "python -m pytest"
    inherited = {k: v for k, v in example_environ.items() if not k.startswith("HAPAX_")}
    done = run_captured(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=example, env=inherited
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("example", with_long_ones("spark"))
def test_what_the_page_types_brings_what_is_expected(example, example_environ, names):
    command = commands(example)[-1]
    if REDIS not in (example / "settings.env").read_text():
        del example_environ[REDIS]
    done = run_captured(
        ["/bin/sh", "-c", command],
        cwd=example,
        env=example_environ | {"NAMES_URL": f"http://127.0.0.1:{names}"},
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split("  ", 2) for line in done.stdout.splitlines()]
    found = sorted(f"{line[0].split('/')[0]} {line[2]}" for line in lines)
    assert found == (example / "expected.txt").read_text().splitlines()


# -- The two commands of README on a machine that has Python, git and make: the rest is hidden.


BARE_WITHIN_S = 600

PROMISES = (
    "tests/integration/test_worker_records.py",
    "tests/integration/test_spark_records.py::test_a_run_of_so_many_records_takes_exactly_those",
)
"""Of `make test`: some on Kafka and Valkey, and one on Spark."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Return a clone and the environment of a user without caches, on whose PATH they are not."""
    folder = tmp_path_factory.mktemp("bare")
    programs = bare_programs(folder)
    clone = folder / "hapax"
    subprocess.run(["/usr/bin/env", "git", "clone", "--quiet", ROOT, clone], check=True)
    where = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "UV_", "SSL_"))}
    return clone, {**where, "PATH": str(programs), "HOME": str(folder), "LANG": "C.UTF-8"}


def typed_bare(bare, *words: str) -> subprocess.CompletedProcess[str]:
    clone, environment = bare
    return run_captured(words, cwd=clone, env=environment, timeout=BARE_WITHIN_S)


@pytest.mark.parametrize("program", ["java", "mvn", "redis-server", "valkey-server", "gcc", "uv"])
def test_control_no_such_program_is_found(bare, program):
    assert shutil.which(program, path=bare[1]["PATH"]) is None


@pytest.mark.long
@pytest.mark.timeout(BARE_WITHIN_S)
def test_the_demo_runs_and_is_exact(bare):
    done = typed_bare(bare, "make", "demo")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Exactly once: every event had its whole effect once" in done.stdout


@pytest.mark.long
@pytest.mark.timeout(BARE_WITHIN_S)
def test_promises_of_make_test_hold_on_what_wheels_bring(bare):
    done = typed_bare(bare, "make", "setup")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    done = typed_bare(bare, ".venv/bin/python", "-m", "pytest", "-q", *PROMISES)
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"\d+ passed", done.stdout)
    assert "skipped" not in done.stdout


# -- docs/disaster-recovery.md and docs/node-loss.md: their commands do what the pages promise.
# A mirror that takes over is in test_two_clusters.py.


PAGE = "disaster-recovery.md"
claiming = a_route(redis=True)


def event(name: str, *headers: tuple[str, bytes]) -> Given:
    return Given(name.encode(), b"k", (("message-id", name.encode()), *headers))


def output_values(route: PipelineUnderTest) -> list[bytes | None]:
    return [record.value for record in route.outputs()]


def test_claims_of_a_lost_store_are_rebuilt_by_the_commands_of_the_page(claiming, sandbox):
    claiming.write(event("one"), event("two"))
    ran(claiming)
    sandbox.redis.flush()
    type_section(Desk(claiming), claiming, PAGE, "The claim store is lost")
    claiming.write(event("two"), event("three"))
    ran(claiming)
    assert output_values(claiming) == [b"one", b"two", b"three"]


def test_lost_offsets_are_set_by_the_commands_of_the_page(claiming: PipelineUnderTest) -> None:
    # Dynamic members leave at once; a group with static ones cannot be deleted for a session.
    refuse = {"INPUT__START": "refuse", "GROUP__MEMBERSHIP": "dynamic"}
    claiming.write(*(event(f"e-{number}") for number in range(4712)))
    ran(claiming, **refuse | {"INPUT__START": "earliest"})
    delete_group(claiming.bootstrap, claiming.app)
    claiming.write(event("e-7"), event("new"))
    claiming.worker("w-0", **refuse).ends_with(6)
    shown, *_ = type_section(Desk(claiming), claiming, PAGE, "The offsets are lost").values()
    assert "Nothing was changed: add --yes" in shown
    assert claiming.committed() == {0: 4712}, "behind the last record that an output names"
    ran(claiming, **refuse)
    assert output_values(claiming)[4711:] == [b"e-4711", b"new"], "the repeat of e-7 is dropped"


def test_what_the_page_of_a_lost_node_has_people_type_answers(claiming):
    claiming.write(event("one"), event("poison", ("raise", b"1")))
    ran(claiming)
    for title in ("A worker's node", "A broker's node", "After any of them"):
        type_section(Desk(claiming), claiming, "node-loss.md", title)
    said = type_section(Desk(claiming), claiming, "capacity.md", "Redis")
    assert "claim-memory" in said["doctor --all"]
    memory = "Memory of a process"
    (less,) = re.findall(r"(?m)^\$ export HAPAX_(\w+)='(.+)'$", section("capacity.md", memory))
    said = type_section(Desk(claiming, **dict([less])), claiming, "capacity.md", memory)
    assert "settings are fine" in said["config check"]


def test_the_pattern_of_the_page_finds_every_key_of_the_app_and_no_other(
    claiming, sandbox, redis_url
):
    """``redis-cli`` is not on each machine: its pattern is used through the client."""
    from redis import Redis  # noqa: PLC0415 - only here

    pattern = section(PAGE, "A mirror takes over").partition("--pattern '")[2].partition("'")[0]
    assert pattern.count("orders-clean") == 1
    sandbox.redis.flush()
    claiming.write(event("one"))
    ran(claiming)
    with Redis.from_url(redis_url) as redis:
        assert list(redis.scan_iter(pattern)) == []
        own = set(redis.scan_iter(pattern.replace("orders-clean", claiming.app), count=10_000))
        assert own == set(redis.scan_iter("hapax*", count=10_000))
        assert len(own) > 2
