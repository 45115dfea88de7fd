import subprocess
import sys
from pathlib import Path

from tests.kit.commands import run_captured

ROOT = Path(__file__).parents[2]


def python(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return run_captured(command, cwd=ROOT)


def test_the_former_name_of_the_package_works_in_a_checkout():
    assert python("-m", "service", "--version").stdout == python("-m", "hapax", "--version").stdout
    code = """
import hapax, service
from hapax.core.forms import load_transform
assert service.Record is hapax.Record and service.Poison is hapax.Poison
load_transform("service.transforms.records:identity")
"""
    ran = python("-c", code)
    assert ran.returncode == 0, ran.stderr
