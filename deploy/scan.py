"""Known weaknesses of what the images hold: ``python -m deploy.scan FOLDER [ADVISORIES]``.

FOLDER has the bills of materials that deploy/sbom.py wrote. ADVISORIES is a file, a folder or a
zip archive of records in the OSV format, kept on this machine: nothing is fetched.
Exit code 0: nothing found, or no advisories given, which is said. 1: findings. 2: a file that
cannot be read, or that is not of that format.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from packageurl import PackageURL
from packaging.utils import canonicalize_name
from univers.versions import InvalidVersion, MavenVersion, PypiVersion, Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ECOSYSTEMS: Final = {"pypi": "PyPI", "maven": "Maven"}
"""Types of package URLs, and what OSV calls them."""
VERSIONS: Final[dict[str, type[Version]]] = {"PyPI": PypiVersion, "Maven": MavenVersion}
_SUMMARY_MAX: Final = 60
_BANNER: Final = """\
************************************************************************
*** NO ADVISORY FILE: nothing was compared, so nothing is known.
*** make scan ADVISORIES=FILE; docs/release.md says what that file is.
************************************************************************"""
_DOUBT: Final = "cannot be compared"


class UnreadableError(Exception):
    """A file that is no bill of materials or no advisory; the text names it and says why."""


class _Package(msgspec.Struct):
    ecosystem: str = ""
    name: str = ""


class _Range(msgspec.Struct):
    type: str = ""
    events: list[dict[str, str]] = []


class _Affected(msgspec.Struct):
    package: _Package = msgspec.field(default_factory=_Package)
    ranges: list[_Range] = []
    versions: list[str] = []


class Advisory(msgspec.Struct):
    """A record of OSV: the parts of it that decide here."""

    id: str
    modified: str
    withdrawn: str | None = None
    aliases: list[str] = []
    summary: str = ""
    affected: list[_Affected] = []


class _Part(msgspec.Struct):
    purl: str


class _Bill(msgspec.Struct):
    components: list[_Part]


class Component(NamedTuple):
    """A library or jar.

    ecosystem  as OSV calls it: ``PyPI`` or ``Maven``
    name       normalized; of a jar ``group:artifact``
    """

    ecosystem: str
    name: str
    version: str


class Finding(NamedTuple):
    """A component that an advisory concerns.

    advisory  its id
    aliases   its ids elsewhere
    fixed     the least version above that has it no more; ``none``; or ``cannot be compared`` where
              a range names commits alone, or a version of no known form: a person has to decide
    """

    component: Component
    advisory: str
    aliases: tuple[str, ...]
    fixed: str
    summary: str


def components(folder: Path) -> dict[Component, list[str]]:
    """Return what the bills of a folder hold, with the names of the bills."""
    found: dict[Component, list[str]] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            bill = msgspec.json.decode(file.read_bytes(), type=_Bill)
        except msgspec.DecodeError as error:
            raise UnreadableError(f"{file} is no bill of materials: {error}") from error
        for part in bill.components:
            url = PackageURL.from_string(part.purl)
            ecosystem = ECOSYSTEMS[url.type]
            name = _normal(ecosystem, ":".join(filter(None, [url.namespace, url.name])))
            found.setdefault(Component(ecosystem, name, url.version or ""), []).append(file.stem)
    if not found:
        raise UnreadableError(f"{folder} has no bill of materials: make sbom")
    return found


def _normal(ecosystem: str, name: str) -> str:
    return canonicalize_name(name) if ecosystem == "PyPI" else name


def advisories(place: Path) -> list[Advisory]:
    """Return every record of a file, a folder or an archive. Raises UnreadableError."""
    found: list[Advisory] = []
    for name, content in _files(place):
        try:
            read = msgspec.json.decode(content, type=Advisory | list[Advisory])
        except msgspec.DecodeError as error:
            raise UnreadableError(f"{name} is no record of OSV: {error}") from error
        found += read if isinstance(read, list) else [read]
    if not found:
        raise UnreadableError(f"{place} has no advisory")
    return found


def _files(place: Path) -> Iterator[tuple[str, bytes]]:
    try:
        if place.is_dir():
            for file in sorted(place.rglob("*.json")):
                yield str(file), file.read_bytes()
        elif zipfile.is_zipfile(place):
            with zipfile.ZipFile(place) as archive:
                for name in sorted(archive.namelist()):
                    if name.endswith(".json"):
                        yield f"{place}/{name}", archive.read(name)
        else:
            yield str(place), place.read_bytes()
    except (OSError, zipfile.BadZipFile) as error:
        raise UnreadableError(f"{place} cannot be read: {error}") from error


def findings(held: Iterable[Component], records: Iterable[Advisory]) -> list[Finding]:
    """Return what the advisories say about the components; withdrawn ones say nothing."""
    named: dict[tuple[str, str], list[Component]] = {}
    for component in held:
        named.setdefault((component.ecosystem, component.name), []).append(component)
    found = set()
    for record in records:
        for affected in record.affected if record.withdrawn is None else ():
            ecosystem = affected.package.ecosystem.partition(":")[0]
            name = _normal(ecosystem, affected.package.name)
            for component in named.get((ecosystem, name), ()):
                fixed = _fixed(component, affected)
                if fixed is not None:
                    aliases = tuple(record.aliases)
                    found.add(Finding(component, record.id, aliases, fixed, record.summary))
    return sorted(found)


def _fixed(component: Component, affected: _Affected) -> str | None:
    """Return ``Finding.fixed``; None where the component is not affected."""
    ranges = [one for one in affected.ranges if one.type != "GIT"]
    if not ranges and not affected.versions:
        return _DOUBT
    kind = VERSIONS[component.ecosystem]
    try:
        version = kind(component.version)
        within = [one.events for one in ranges if _within(version, kind, one.events)]
        fixes = [kind(event["fixed"]) for one in within for event in one if "fixed" in event]
    except InvalidVersion:
        return _DOUBT
    if not within and component.version not in affected.versions:
        return None
    above = [fix for fix in fixes if fix > version]
    return str(min(above).string) if above else "none"


def _within(version: Version, kind: type[Version], events: list[dict[str, str]]) -> bool:
    """Whether the last event that a version has passed is an introduction; "0" comes before all."""
    begun = any(event.get("introduced") == "0" for event in events)
    passed = []
    for word, text in (pair for event in events for pair in event.items()):
        if (word, text) in {("introduced", "0"), ("limit", "*")}:
            continue
        bound = kind(text)
        if bound < version or (bound == version and word != "last_affected"):
            passed.append((bound, word == "introduced"))
    return max(passed)[1] if passed else begun


def table(found: list[Finding], held: dict[Component, list[str]]) -> str:
    """Return the findings as lines of columns."""
    rows = [("component", "image", "advisory", "also known as", "fixed in", "summary")]
    for one in found:
        component = f"{one.component.name} {one.component.version}"
        images = ",".join(held[one.component])
        words = one.summary[:_SUMMARY_MAX]
        rows.append((component, images, one.advisory, ",".join(one.aliases), one.fixed, words))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def main(arguments: list[str]) -> int:
    """Print what was found; return the exit code."""
    if len(arguments) == 1:
        print(_BANNER)
        return 0
    try:
        held = components(Path(arguments[0]))
        records = advisories(Path(arguments[1]))
    except UnreadableError as error:
        print(error, file=sys.stderr)
        return 2
    found = findings(held, records)
    if found:
        print(table(found, held))
    print(f"{len(held)} components, {len(records)} advisories: {len(found)} findings")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
