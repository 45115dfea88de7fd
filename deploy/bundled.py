"""What is in an image beyond its lock: installed packages, and what their wheels bundle.

``python -m deploy.bundled ROOT`` prints it as a bill of materials (CycloneDX). ROOT is where the
image is unpacked or mounted. Three sources: the metadata of what is installed below /opt/hapax, the
bills that wheels bring along (PEP 770), and their shared libraries, each with its hash; of what is
linked into those, only what says its version in a known form.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from importlib.metadata import Distribution

Component = dict[str, Any]
# A library, not an extension module of Python: libNAME, a hash of the tool that bundled it, .so.
_LIBRARY: Final = re.compile(r"(?P<name>lib[\w+]+?)(?:-[0-9a-f]{8})*\.so(?:\.[\d.]+)?")
_LINKED: Final = {"OpenSSL": re.compile(rb"OpenSSL (\d+\.\d+\.\d+[a-z]?) +\d+ [A-Z][a-z]{2} \d{4}")}


def contents(root: Path) -> list[Component]:
    """Return the components, each once."""
    [site] = root.glob("opt/hapax/lib/python3*/site-packages")
    found: dict[str, Component] = {}
    for package in distributions(path=[str(site)]):
        for component in (_package(package), *_told(package), *_libraries(package)):
            found.setdefault(component["bom-ref"], component)
    return [found[reference] for reference in sorted(found)]


def _package(package: Distribution) -> Component:
    purl = f"pkg:pypi/{package.name.lower()}@{package.version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
    }


def _told(package: Distribution) -> list[Component]:
    """Return what the wheel says of itself; what concerns no other tool is left out."""
    bills = [file for file in package.files or () if "/sboms/" in str(file)]
    told = [json.loads(Path(str(file.locate())).read_text()) for file in bills]
    return [
        {
            "type": each["type"],
            "bom-ref": each.get("purl") or f"{each['name']}@{each.get('version', '')}",
            **{key: each[key] for key in ("name", "version", "purl", "hashes") if key in each},
            "properties": [_bundled_in(package)],
        }
        for bill in told
        for each in bill.get("components", ())
    ]


def _libraries(package: Distribution) -> list[Component]:
    found = []
    for file in package.files or ():
        if match := _LIBRARY.fullmatch(file.name):
            data = Path(str(file.locate())).read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            within = {"type": "library", "properties": [_bundled_in(package)]}
            hashes = [{"alg": "SHA-256", "content": digest}]
            reference = f"{file}@{digest}"
            name = match["name"]
            found.append(within | {"bom-ref": reference, "name": name, "hashes": hashes})
            for linked, form in _LINKED.items():
                for version in sorted({each.decode() for each in form.findall(data)}):
                    named = {"name": linked, "version": version}
                    found.append(within | {"bom-ref": f"{linked}@{version} in {file}"} | named)
    return found


def _bundled_in(package: Distribution) -> dict[str, str]:
    return {"name": "hapax:bundled-in", "value": f"{package.name} {package.version}"}


def bill(root: Path) -> dict[str, Any]:
    """Return the bill of materials of the image below ``root``."""
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "components": contents(root),
    }


if __name__ == "__main__":
    print(json.dumps(bill(Path(sys.argv[1])), indent=2))
