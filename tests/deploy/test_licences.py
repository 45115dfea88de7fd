"""make licences: what an image holds is under a licence that pyproject.toml allows."""

from __future__ import annotations

import subprocess
import sys
import tomllib

from tests.deploy.steps import ROOT

ALLOWED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pip-licenses"]["allow-only"]


def listed(*options: str) -> subprocess.CompletedProcess[str]:
    """Run the command of ``make licences``."""
    makefile = (ROOT / "Makefile").read_text()
    packages = makefile.partition("--packages $$(")[2].partition(")")[0]
    names = subprocess.run(
        ["/bin/sh", "-c", packages], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(names) > 60
    return subprocess.run(
        [sys.executable, "-m", "piplicenses", *options, "--packages", *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_library_of_the_images_is_under_a_licence_that_is_allowed():
    done = listed()
    assert done.returncode == 0, done.stderr
    assert {"confluent-kafka", "kafka-python", "pyspark"} <= set(done.stdout.split())


def test_a_licence_that_is_not_allowed_ends_it():
    fewer = ";".join(name for name in ALLOWED.split(";") if name != "Apache-2.0")
    done = listed(f"--allow-only={fewer}")
    assert (done.returncode, "Apache-2.0" in done.stderr) == (1, True)
