"""``hapax audit``: topics of one pipeline, read and judged by one of two engines."""

from __future__ import annotations

import time
from contextlib import closing
from importlib.util import find_spec
from typing import TYPE_CHECKING

from hapax.core.errors import ConfigurationError
from hapax.core.transform import load_form
from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.operations.audit.local import LocalAudit
from hapax.operations.audit.result import EngineName
from hapax.operations.audit.topics import AuditOptions, AuditTopics, run

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from hapax.operations.audit.result import Audit
    from hapax.operations.audit.topics import Engine, Report
    from hapax.settings import Settings


def audit(
    settings: Settings,
    options: AuditOptions,
    report: Report,
    engine: EngineName = EngineName.LOCAL,
) -> Audit:
    """Raise ConfigurationError, PreflightError, or HapaxError when not all could be read."""
    began_s = time.monotonic()
    if options.transform:
        load_form(settings.transform)  # its errors are reported before anything starts
    if engine is EngineName.SPARK and settings.retry_topic is not None:
        problem = (
            "--engine spark does not account for records that wait for a later try: leave it out"
            " where HAPAX_RETRY__TOPIC or HAPAX_RETRY__LATER is set"
        )
        raise ConfigurationError([problem])
    if engine is EngineName.SPARK and find_spec("pyspark") is None:
        raise ConfigurationError(
            ["--engine spark needs PySpark. Run: pip install 'hapax-kafka[spark]'"]
        )
    with closing(BlockingOffsets(settings)) as client:
        topics = AuditTopics(settings, options, client, report)
        with _opened(engine, settings, report) as reader:
            found = run(reader, topics, examples_max=options.examples_max)
    found.duration_s = round(time.monotonic() - began_s, 1)
    return found


def _opened(
    engine: EngineName, settings: Settings, report: Report
) -> AbstractContextManager[Engine]:
    if engine is EngineName.SPARK:
        from hapax.operations.audit.spark import opened

        return opened(settings, report)
    return LocalAudit.opened(report)
