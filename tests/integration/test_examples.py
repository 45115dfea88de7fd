"""The examples: their tests pass, and the commands of their pages do what is written there."""

import os
import re
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
from tests.kit.proof import at_length

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(file.parent for file in (ROOT / "examples").glob("*/settings.env"))
BIN = Path(sys.executable).parent
REDIS = "HAPAX_DEDUP__REDIS_URL"


@pytest.fixture
def environ():
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
        names = {file.name for file in example.iterdir()}
        assert names >= {
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
def test_the_tests_of_an_example_pass(example, environ):
    assert commands(example)[0] == "python -m pytest"
    inherited = {name: text for name, text in environ.items() if not name.startswith("HAPAX_")}
    done = run_captured(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=example, env=inherited
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.real
@pytest.mark.parametrize("example", with_long_ones("spark"))
def test_what_the_page_types_brings_what_is_expected(example, environ, names):
    command = commands(example)[-1]
    if REDIS not in (example / "settings.env").read_text():
        del environ[REDIS]
    done = run_captured(
        ["/bin/sh", "-c", command],
        cwd=example,
        env=environ | {"NAMES_URL": f"http://127.0.0.1:{names}"},
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split("  ", 2) for line in done.stdout.splitlines()]
    found = sorted(f"{line[0].split('/')[0]} {line[2]}" for line in lines)
    assert found == (example / "expected.txt").read_text().splitlines()
