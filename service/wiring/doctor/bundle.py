"""An archive for support: what was found out, without a secret.

Settings are shown as everywhere else. On top of that every secret that these settings hold, or the
environment, is struck out of every text, wherever it came from.
"""

from __future__ import annotations

import io
import json
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from urllib.request import urlopen

import msgspec

from service import __version__
from service.core.errors import ConfigurationError
from service.core.findings import counts
from service.core.partition_offsets import PartitionOffsets, position
from service.settings import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from service.core.facts import Log, TopicPartition
    from service.core.findings import Finding
    from service.settings import Settings
    from service.wiring.doctor.case import Case

STATUS_TIMEOUT_S, STATUS_BYTES_MAX = 1.0, 1 << 20
FOLDER = "hapax-doctor"
STRUCK = "***"
_SECRET_MIN = 2
"""One letter stands everywhere; striking it out would leave nothing to read."""


def write_bundle(
    path: Path, environ: Mapping[str, str], findings: Iterable[Finding], case: Case | None
) -> None:
    """Write the archive (tar, gzip), readable for its owner alone.

    ``case`` is None where the settings could not be read. Raises ConfigurationError when the file
    cannot be written.
    """
    files = _files(tuple(findings), case)
    struck = sorted(set(secrets(environ)), key=len, reverse=True)
    try:
        path.touch(mode=0o600)
        with tarfile.open(path, "w:gz") as archive:
            for name, content in files.items():
                _add(archive, name, _strike(json.dumps(content, indent=2), struck))
    except OSError as error:
        raise ConfigurationError(
            [f"--bundle {path}: the file cannot be written: {error.strerror or error}"]
        ) from None


def secrets(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield every secret that the environment holds or points at, in all its spellings."""
    for variable in VARIABLES:
        if not variable.form.secret:
            continue
        for text in _values(environ, variable.name, variable.file_name):
            # Of an address only the password is secret; the rest is needed to understand.
            for part in _passwords(text) if "://" in text else (text,):
                for spelling in (part, quote(part, safe=""), json.dumps(part)[1:-1]):
                    if len(spelling) >= _SECRET_MIN:
                        yield spelling


def _values(environ: Mapping[str, str], name: str, file_name: str | None) -> Iterator[str]:
    if text := environ.get(name, "").strip():
        yield text
    if file_name is not None and (path := environ.get(file_name, "").strip()):
        try:
            yield Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError):
            return


def _passwords(address: str) -> Iterator[str]:
    """Yield the passwords inside an address; all of it where it cannot be read."""
    try:
        parts = urlsplit(address)
    except ValueError:
        yield address
        return
    password = parts.netloc.rpartition("@")[0].partition(":")[2]
    yield password
    yield unquote(password)
    for name, value in parse_qsl(parts.query):
        if "password" in name:
            yield value


def _files(findings: tuple[Finding, ...], case: Case | None) -> dict[str, Any]:
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    report = {
        "version": __version__,
        "made": made,
        "counts": counts(findings),
        "findings": msgspec.to_builtins(findings),
    }
    if case is None:
        return {"doctor.json": report}
    facts = msgspec.to_builtins(
        {
            "kafka": msgspec.structs.replace(case.kafka, logs={}),
            "claims": case.claims,
            "process": case.process,
        },
        str_keys=True,
    )
    offsets = {
        f"{topic}/{number}": _offsets(case, (topic, number), log)
        for (topic, number), log in sorted(case.kafka.logs.items())
    }
    files = {
        "doctor.json": report,
        "settings.json": case.settings.effective(),
        "facts.json": facts,
        "offsets.json": offsets,
        "versions.json": dict(case.process.libraries),
    }
    status = _status(case.settings)
    return files if status is None else {**files, "status.json": status}


def _offsets(case: Case, where: TopicPartition, log: Log) -> dict[str, Any]:
    """Return one partition as ``hapax offsets --json`` spells it, and what only this look has."""
    told: dict[str, Any] = msgspec.to_builtins(log, str_keys=True)
    low, stable, end = log.low_watermark, log.last_stable_offset, log.high_watermark
    if low is None or stable is None or end is None:
        return told
    offsets = PartitionOffsets(
        topic=where[0],
        partition=where[1],
        low_watermark=low,
        committed=log.committed,
        position=position(log.committed, low, stable, case.settings.input.start),
        last_stable_offset=stable,
        high_watermark=end,
    )
    if where[0] in case.settings.input.topics:
        return told | offsets.figures()
    return told | offsets.log_figures()


def _status(settings: Settings) -> Any:
    """Return what a service on this machine says of itself; None where there is none."""
    host = settings.telemetry.address
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - asked here, not listened on
        host = "127.0.0.1"
    host = f"[{host}]" if ":" in host else host
    address = f"http://{host}:{settings.telemetry.port}/status.json"
    try:
        with urlopen(address, timeout=STATUS_TIMEOUT_S) as answer:
            return json.loads(answer.read(STATUS_BYTES_MAX))
    except (URLError, OSError, ValueError):
        return None


def _strike(text: str, struck: Iterable[str]) -> bytes:
    for secret in struck:
        text = text.replace(secret, STRUCK)
    return text.encode()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(f"{FOLDER}/{name}")
    entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
    archive.addfile(entry, io.BytesIO(content))
