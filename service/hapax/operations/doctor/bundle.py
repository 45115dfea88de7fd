"""An archive for support: what was found out, without a secret.

Settings are shown as everywhere else. On top of that every secret that these settings hold, or the
environment, is struck out of every text, wherever it came from.
"""

from __future__ import annotations

import errno
import io
import json
import os
import tarfile
import tempfile
import time
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hapax import __version__
from hapax.cluster.partition_offsets import PartitionOffsets, position
from hapax.core.errors import ConfigurationError, HapaxError
from hapax.operations.doctor.check import counts
from hapax.operations.local_process import LocalProcess
from hapax.settings.secrets import Strike, secrets_around, secrets_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hapax.cluster.cluster_state import Log
    from hapax.core.records import TopicPartition
    from hapax.operations.doctor.check import CheckContext, Finding

STATUS_TIMEOUT_S = 1.0
FOLDER = "hapax-doctor"
SECRET_LENGTH_MIN = 2
"""An archive is sent to others: better a text with gaps than a short password in it."""


def write_bundle(
    path: Path,
    environ: Mapping[str, str],
    findings: Iterable[Finding],
    context: CheckContext | None,
    target: CheckContext | None = None,
) -> None:
    """Write the archive (tar, gzip), readable for its owner alone.

    ``context`` is None where the settings could not be read, ``target`` is that on another cluster
    of the outputs. Raises ConfigurationError when the file cannot be written.
    """
    files = _files(tuple(findings), context)
    if target is not None:
        files["facts-outputs.json"] = _facts(target)
        files["offsets-outputs.json"] = _all_offsets(target)
    held = () if context is None else secrets_of(context.settings)
    strike = Strike({*secrets_around(environ), *held}, SECRET_LENGTH_MIN)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            text = strike(json.dumps(strike.value(content), indent=2)).encode()
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size, entry.mode, entry.mtime = len(text), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(text))
    try:
        _replace(path, packed.getvalue())
    except OSError as error:
        problem = f"--bundle {path}: the file cannot be written: {error.strerror or error}"
        raise ConfigurationError(problem) from None


def _replace(path: Path, content: bytes) -> None:
    """Put a new file, readable for its owner alone, in the place of any other.

    A link is replaced and not followed, a file keeps neither its mode nor its other names, and a
    write that fails leaves what was there. Raises OSError.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file")
    number, name = tempfile.mkstemp(prefix=".hapax-doctor-", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _files(findings: tuple[Finding, ...], context: CheckContext | None) -> dict[str, Any]:
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    report = {
        "version": __version__,
        "made": made,
        "counts": counts(findings),
        "findings": msgspec.to_builtins(findings),
    }
    if context is None:
        return {"doctor.json": report}
    files: dict[str, Any] = {
        "doctor.json": report,
        "settings.json": context.settings.effective(),
        "facts.json": _facts(context),
        "offsets.json": _all_offsets(context),
        "versions.json": dict(context.process.libraries),
    }
    with suppress(HapaxError):
        code, status = LocalProcess(context.settings).ask("GET", "/status.json", STATUS_TIMEOUT_S)
        if code == HTTPStatus.OK:
            files["status.json"] = status
    return files


def _facts(context: CheckContext) -> Any:
    return msgspec.to_builtins(
        {
            "kafka": msgspec.structs.replace(context.kafka, logs={}),
            "claims": context.claims,
            "process": context.process,
        },
        str_keys=True,
    )


def _all_offsets(context: CheckContext) -> dict[str, Any]:
    return {
        f"{topic}/{number}": _offsets(context, (topic, number), log)
        for (topic, number), log in sorted(context.kafka.logs.items())
    }


def _offsets(context: CheckContext, where: TopicPartition, log: Log) -> dict[str, Any]:
    """Return one partition as ``hapax offsets --json`` spells it, and what only this look has."""
    told: dict[str, Any] = msgspec.to_builtins(log, str_keys=True)
    told.pop("offsets")
    if log.offsets is None:
        return told
    offsets = PartitionOffsets(
        topic=where[0],
        partition=where[1],
        log=log.offsets,
        committed=log.committed,
        position=position(log.committed, log.offsets, context.settings.input.start),
    )
    read = where[0] in context.settings.input.topics
    return told | (offsets.figures() if read else offsets.log_figures())
