"""The commands of the pages that a newcomer types, read from the pages and typed as they are."""

import os
import re
import resource
import shlex
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from hapax.sandbox.processes import Ports
from tests.kit.commands import run_captured
from tests.kit.proof import at_length

ROOT = Path(__file__).parents[2]
WORDS_MAX = 900
COMMANDS_MAX = 8
"""From a clone to a record that went through a function of one's own; the clone is the first."""
WITHIN_S = 300
NOT_HERE = (
    "docker ",
    "pip install --require-hashes",
    "pip install --no-deps",
    "hapax run",
    "doctor",
)
"""Commands that need a container engine, a page of their own in the tests (test_wheel.py), or a
service that runs elsewhere."""


def section(page: str, first: str, last: str) -> str:
    """Return a page from one title up to another."""
    text = (ROOT / page).read_text()
    return f"## {first}\n" + text.partition(f"\n## {first}\n")[2].partition(f"\n## {last}\n")[0]


def steps(text: str) -> list[str]:
    """Return what a page has people do, in order: commands, and ``cat`` for a file it shows."""
    found = []
    shown = re.compile(
        r"(?ms)(Replace `(?P<file>[\w.]+)`:\n\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$"
    )
    for block in shown.finditer(text):
        if block["kind"] == "console":
            found += [line.removeprefix("$ ") for line in block["text"].splitlines()]
        elif block["file"]:
            found.append(f"cat > {block['file']} <<'END'\n{block['text']}END")
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


def typed(text: str, tmp_path: Path, *, cold: bool = False) -> subprocess.CompletedProcess[str]:
    """Type a page in a new checkout, on ports that are free here.

    ``cold`` is a user who never fetched anything: no library and no Kafka is in a cache.
    """
    checkout = tmp_path / "checkout"
    subprocess.run(["/usr/bin/env", "git", "clone", "--quiet", ROOT, checkout], check=True)
    with closing(Ports()) as ports:
        kafka, store, page = (ports.reserve() for _ in range(3))
    # What says where packages are from, and the caches, are the user's; the ports count more than
    # those of settings.env, which another user of this machine may have taken.
    kept = {"HOME", "LANG", "JAVA_HOME", "XDG_CACHE_HOME"}
    environ = {
        name: value
        for name, value in os.environ.items()
        if name in kept or name.startswith(("PIP_", "UV_"))
    }
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "python3").symlink_to(Path(sys._base_executable))  # type: ignore[attr-defined] # typeshed does not know it
    environ |= {
        "PATH": f"{bin_folder}:/usr/local/bin:/usr/bin:/bin",
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
        timeout=WITHIN_S * 2,
    )


def test_the_readme_is_short_before_its_reference():
    text, title, _rest = (ROOT / "README.md").read_text().partition("\n## Reference\n")
    assert title
    assert len(text.split()) <= WORDS_MAX


def test_a_function_of_ones_own_is_a_few_commands_away():
    wanted = steps(section("docs/quickstart.md", "Install", "Stay with it"))
    [edited] = [number for number, step in enumerate(wanted) if step.startswith("cat > ")]
    # The run before the edit shows what the generated function does; it is not needed for it.
    needed = [step for step in wanted[:edited] if "--once" not in step] + wanted[edited + 1 :]
    assert needed[-1] == "hapax dev --once < events.jsonl"
    assert 1 + len(needed) <= COMMANDS_MAX


@pytest.mark.long
@pytest.mark.real
@pytest.mark.timeout(WITHIN_S * 3)
def test_the_quickstart_of_the_readme_works_as_it_is_typed(tmp_path):
    done = typed(section("README.md", "Install", "What it promises"), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
    assert (
        sum(line.startswith(("orders-out/", "orders-dead/")) for line in done.stdout.split("\n"))
        == 3
    )


@pytest.mark.long
@pytest.mark.real
@pytest.mark.timeout(WITHIN_S * 3)
@pytest.mark.rounds
@at_length
def test_the_quickstart_works_as_it_is_typed_and_in_five_minutes(tmp_path):
    began_s = busy_s()
    page = section("docs/quickstart.md", "Install", "Locked libraries")
    done = typed(page, tmp_path, cold=True)
    took_s = busy_s() - began_s
    assert done.returncode == 0, done.stdout + done.stderr
    parts = done.stdout.split("\n$ ")
    first, own = (part for part in parts if part.startswith("hapax dev --once"))
    shown = re.search(
        r"(?ms)^```\n(orders-dead.*?)^```$", (ROOT / "docs/quickstart.md").read_text()
    )
    assert shown is not None
    assert values(first) == values(shown[1])
    assert [key for key, _value in values(own)] == ["a-1", "a-2", "a-3", "a-4"]
    [consumed] = (part for part in parts if part.startswith("hapax consume"))
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


def values(text: str) -> list[tuple[str, str]]:
    """Return key and value of each line of output, sorted: partitions and offsets may differ."""
    lines = [line.split("  ", 2) for line in text.splitlines() if line.startswith("orders-")]
    return sorted((line[1], line[2]) for line in lines)
