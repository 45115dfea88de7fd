"""Licences of what the images hold: libraries of the locks, and the jars of Spark's connector.

``page()`` is docs/licences.md; ``python -m deploy.licences`` exits with 1 where a licence is not
one of ``ALLOWED``. A licence is what an installed library states about itself, in terms of SPDX.
``RECORDED`` has those that no environment states alike: libraries that are installed on some
platforms or Pythons only, and such that state no expression of SPDX.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from license_expression import ExpressionError, get_spdx_licensing
from packaging.requirements import Requirement

from hapax.engines.spark.connector import CONNECTOR
from hapax.jars import locked

if TYPE_CHECKING:
    from email.message import Message

ROOT: Final = Path(__file__).parents[1]
IMAGES: Final = ("worker", "spark")
ALLOWED: Final = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT-0",
        "MPL-2.0",
        "PSF-2.0",
        "Zlib",
    }
)
"""Permissive, and MPL-2.0, which asks for the sources of its own files alone."""

RECORDED: Final = {
    # Read in the wheels, by hand: a new version has to be read again.
    "async-timeout 5.0.1": "Apache-2.0",
    "colorama 0.4.6": "BSD-3-Clause",
    "httpx2-jsfetch 1.0": "BSD-3-Clause",
    "numpy 2.4.6": "BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0",
    "numpy 2.5.5": "BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0",
    "py4j 0.10.9.9": "BSD-3-Clause",
    "python-dateutil 2.9.0.post0": "BSD-3-Clause AND (Apache-2.0 OR BSD-3-Clause)",
    "uvloop 0.23.0": "MIT OR Apache-2.0",
    # Read in the POMs of the jars and of their parents.
    "org.apache.commons:commons-pool2 2.13.1": "Apache-2.0",
    "org.apache.kafka:kafka-clients 3.9.2": "Apache-2.0",
    "org.apache.spark:spark-sql-kafka-0-10_2.13 4.2.0": "Apache-2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13 4.0.0": "Apache-2.0",
}
WORDS: Final = {
    "Apache 2": "Apache-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "ISC License": "ISC",
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: MIT License": "MIT",
    "MIT License": "MIT",
}
"""What libraries write in the place of an SPDX expression, where it can mean one licence only."""

_SPDX: Final = get_spdx_licensing()


class Licensed(NamedTuple):
    """One version of a library or jar, its licence, and the images that hold it.

    name     as on the index; of a jar ``group:artifact``
    licence  an SPDX expression
    images   names of targets of the Dockerfile
    """

    name: str
    version: str
    licence: str
    images: tuple[str, ...]


@cache
def licensed() -> tuple[Licensed, ...]:
    """Return everything that a lock pins, by name and version.

    Raises LookupError with what to do where a licence is unknown.
    """
    holding: dict[tuple[str, str], list[str]] = {}
    for image in IMAGES:
        for pin in pins(image):
            holding.setdefault(pin, []).append(image)
    for jar in locked(CONNECTOR):
        holding[f"{jar.group}:{jar.artifact}", jar.version] = ["spark"]
    return tuple(
        Licensed(name, version, licence_of(name, version), tuple(images))
        for (name, version), images in sorted(holding.items())
    )


def pins(image: str) -> list[tuple[str, str]]:
    """Return name and version of each line of a lock, whatever platform or Python it is for."""
    text = (ROOT / "requirements" / f"{image}.txt").read_text(encoding="utf-8")
    lines = re.findall(r"(?m)^([\w.-]+==[^\\\n]+)", text)
    wanted = [Requirement(line) for line in lines]
    return [(each.name, next(iter(each.specifier)).version) for each in wanted]


def licence_of(name: str, version: str) -> str:
    """Return the licence, as an SPDX expression. Raises LookupError with what to do."""
    recorded = RECORDED.get(f"{name} {version}")
    if recorded is not None:
        return recorded
    try:
        found = distribution(name)
    except PackageNotFoundError as error:
        raise LookupError(f"{name} is not installed: record its licence in RECORDED") from error
    if found.version != version:
        raise LookupError(f"{name} {version} is locked, {found.version} installed: make setup")
    stated = licence_in(found.metadata)  # type: ignore[arg-type] # typeshed: a protocol of Message
    if stated is None:
        raise LookupError(f"{name} {version} states no licence of SPDX: read it, record it")
    return stated


def licence_in(metadata: Message) -> str | None:
    """Return what the metadata of a distribution state; None where that is not one expression."""
    expression = metadata.get("License-Expression")
    if expression is not None:
        return str(expression)
    text = (metadata.get("License") or "").partition("\n")[0].strip()
    classified = [
        str(one) for one in metadata.get_all("Classifier") or () if one.startswith("License ::")
    ]
    told = [text] if text else classified
    if len(told) != 1:
        return None
    word = WORDS.get(told[0], told[0])
    return word if _known(word) else None


def refused(expression: str) -> bool:
    """Whether no choice that the expression leaves has allowed licences only."""
    if not _known(expression):
        return True
    choices = _SPDX.dedup(expression)
    allowed = {key: _SPDX.TRUE for key in choices.symbols if str(key) in ALLOWED}
    return bool(choices.subs(allowed).simplify() != _SPDX.TRUE)


def _known(expression: str) -> bool:
    try:
        return _SPDX.parse(expression, validate=True, strict=True) is not None
    except ExpressionError:
        return False


_PAGE: Final = """\
# Licences

Written by `make generate` from the locks of the images and from what the libraries state about
themselves; a test compares, and refuses a licence that is not allowed.
Hapax itself is under Apache-2.0.

A wheel or jar may contain parts of others, as confluent-kafka contains librdkafka and PySpark the
jars of Spark: their licences are in files of that wheel or jar, and not in this table.
What the base image and Debian bring is listed by the image itself.

Allowed: {allowed}.
Of licences that are joined by OR one is enough.

| library | version | licence | image |
|---|---|---|---|
{rows}
"""


def page() -> str:
    """Return docs/licences.md."""
    rows = [
        f"| {one.name} | {one.version} | {one.licence} | {', '.join(one.images)} |"
        for one in licensed()
    ]
    allowed = ", ".join(sorted(ALLOWED))
    return _PAGE.format(allowed=allowed, rows="\n".join(rows))


def main() -> None:
    """Exit with 1 and a line for each licence that is not allowed."""
    wrong = [one for one in licensed() if refused(one.licence)]
    for one in wrong:
        print(f"{one.name} {one.version}: {one.licence} is not allowed")
    print(f"{len(licensed())} licences, {len(wrong)} not allowed")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
