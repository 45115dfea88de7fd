"""What an audit finds of a pipeline under test."""

from collections.abc import Mapping

from hapax.operations.audit.result import Audit, Compare
from hapax.operations.audit.topics import AuditOptions, audit
from hapax.settings import load_settings
from tests.kit.pipeline_under_test import PipelineUnderTest


def accounted(route: PipelineUnderTest, settings: Mapping[str, str] | None = None) -> Audit:
    """Return what an audit of a route finds; ``settings``: of its workers, without HAPAX_."""
    loaded = load_settings(
        {
            name: text
            for name, text in route.environment(**(settings or {})).items()
            if "HAPAX_" in name
        }
        | {"HAPAX_INSTANCE": "w-0"}
    )
    return audit(loaded, AuditOptions(compare=Compare.VALUES), lambda *_what: None)
