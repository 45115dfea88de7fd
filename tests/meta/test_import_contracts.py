import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

from tests.kit.commands import run_captured

ROOT = Path(__file__).parents[2]

# Where a file is planted, what it imports, and the contract that must notice.
PLANTED = [
    ("core/low.py", "import hapax.engines", "Arrows point down only"),
    ("cluster/across.py", "import hapax.processing.plan", "Arrows point down only"),
    ("kafka/read/sideways.py", "import hapax.engines", "Arrows point down only"),
    ("stray.py", "", "Arrows point down only"),
    ("cluster/knows.py", "import yaml", "The core and its rooms know"),
    ("engines/direct.py", "import confluent_kafka", "One door to Kafka"),
    ("claims/other.py", "from confluent_kafka import Producer", "One door to Kafka"),
    ("kafka/claims.py", "import redis.asyncio", "One door to Redis"),
    ("engines/other.py", "import lmdb", "One door to the store of state"),
    ("kafka/aws.py", "import aws_msk_iam_sasl_signer", "One door to AWS"),
    ("engines/values.py", "import fastavro", "One door to the formats of values"),
    ("core/fast.py", "import hapax_fast", "One door to the native path"),
    ("kafka/admin/other.py", "import kafka", "One door to the second Kafka client"),
    ("commands/files.py", "import dotenv", "One door to files of variables"),
    ("commands/spark.py", "import pyspark", "One door to Spark"),
    ("engines/logs.py", "import structlog", "One door to logs and metrics"),
    ("kafka/metrics.py", "import prometheus_client", "One door to logs and metrics"),
    ("kafka/traces.py", "import opentelemetry.trace", "One door to traces"),
    ("transforms/env.py", "import pydantic", "One door to the environment"),
    ("engines/screen.py", "from rich import print", "One door to the terminal"),
    ("kafka/loud.py", "import hapax.telemetry", "Adapters return or raise"),
    ("engines/client.py", "import hapax.kafka.errors", "Engines know ports"),
    ("kafka/read/member.py", "import hapax.kafka.consume.source", "Administration and reading"),
    ("kafka/admin/sender.py", "import hapax.kafka.produce.producer", "Administration and reading"),
    ("kafka/produce/taker.py", "import hapax.kafka.consume.client", "Producing does not know"),
]


def lint_imports(folder: Path) -> str:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    # The package that is installed here would be found before the one in the folder.
    env = {**os.environ, "PYTHONPATH": str(folder / "service")}
    run = run_captured(command, cwd=folder, env=env)
    return run.stdout + run.stderr


def broken(shown: str, contract: str) -> str:
    """Return what is shown of a contract that is broken: its section behind all verdicts."""
    verdict = rf"(?m)^{contract}.* BROKEN\b"
    section = re.search(rf"(?ms)^{contract}[^\n]*\n-+\n(.*?)(?=^[^\n]+\n-+\n|\Z)", shown)
    return section[1] if re.search(verdict, shown) and section else ""


def test_the_import_contracts_hold():
    shown = lint_imports(ROOT)
    assert " 0 broken." in shown, shown


def test_every_contract_has_an_import_here_that_breaks_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names = [contract["name"] for contract in project["tool"]["importlinter"]["contracts"]]
    planted = tuple(contract for _, _, contract in PLANTED)
    assert [name for name in names if not name.startswith(planted)] == []


def test_a_bad_import_breaks_its_contract(tmp_path):
    bytecode = shutil.ignore_patterns("__pycache__")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "service", tmp_path / "service", ignore=bytecode)
    shutil.copytree(ROOT / "tests/meta", tmp_path / "tests/meta", ignore=bytecode)
    for file, line, _ in PLANTED:
        (tmp_path / "service/hapax" / file).write_text(f"{line}\n")
    shown = lint_imports(tmp_path)
    modules = [(file[:-3].replace("/", "."), contract) for file, _, contract in PLANTED]
    missed = [m for m, contract in modules if f"hapax.{m}" not in broken(shown, contract)]
    assert missed == [], shown
