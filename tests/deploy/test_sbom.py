"""The bill of materials names every library of the lock with every hash and the licence of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import hapax
from hapax.engines.spark.session import CONNECTOR
from hapax.jars import locked
from tests.deploy.steps import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.deep  # reads each library, for half a minute


@pytest.fixture(scope="module")
def bills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sbom")
    subprocess.run([sys.executable, "-m", "deploy.sbom", folder], check=True, cwd=ROOT)
    return folder


def lock(image: str) -> set[tuple[str, str, str]]:
    """Return name, version and hash, for each hash of each library of a lock."""
    text = (ROOT / f"requirements/{image}.txt").read_text().replace("\\\n", " ")
    found = set()
    for line in text.splitlines():
        if pin := re.match(r"([\w.-]+)==(\S+)", line):
            hashes = re.findall(r"--hash=sha256:(\w+)", line)
            found |= {(pin[1], pin[2], each) for each in hashes}
    return found


def told(component: Any) -> set[tuple[str, str, str]]:
    sources = [component, *component.get("externalReferences", ())]
    return {
        (component["name"], component["version"], each["content"])
        for source in sources
        for each in source.get("hashes", ())
    }


@pytest.mark.parametrize("image", ["worker", "spark"])
def test_the_bill_is_the_lock(image, bills):
    bill = json.loads((bills / f"{image}.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    about = bill["metadata"]["component"]
    assert (about["name"], about["version"]) == ("hapax-kafka", hapax.__version__)
    jars = {(jar.artifact, jar.version, jar.sha256) for jar in locked(CONNECTOR)}
    wanted = lock(image) | (jars if image == "spark" else set())
    assert len(wanted) > 100
    assert set().union(*map(told, bill["components"])) == wanted
    purls = [component["purl"] for component in bill["components"]]
    assert len(set(purls)) == len(purls)
    assert all(purl.startswith(("pkg:pypi/", "pkg:maven/")) for purl in purls)
    unstated = [each["name"] for each in bill["components"] if "licenses" not in each]
    assert len(unstated) < 6, f"not installed here, or of another version: {unstated}"


@pytest.mark.parametrize("image", ["worker", "spark"])
def test_the_bill_is_of_the_form_that_others_read(image, bills):
    text = (bills / f"{image}.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
