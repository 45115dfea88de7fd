"""The check of the schema registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.errors import HapaxError
from hapax.core.formats import WITH_REGISTRY
from hapax.operations.doctor.check import check, fail, ok, warn
from hapax.schemas.codec import Encoder, check_output
from hapax.schemas.lookup import Lookup
from hapax.schemas.registry import Registry, UnknownSchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.operations.doctor.check import Case, CheckResult


@check(
    "schema-registry",
    "whether the schema registry answers, and has the schema of the outputs; the compatibility of "
    "its subject",
    "FAIL: it does not, or refuses the login. WARN: the subject takes any version (NONE).",
    needs="process",
    now=True,
)
def _registry(case: Case) -> Iterator[CheckResult]:
    formats, settings = case.settings.formats, case.settings
    if not formats.needs_registry:
        yield ok("no format needs a schema registry")
        return
    registry = Registry(formats.registry)
    try:
        registry.compatibility()
        check_output(formats, Lookup(formats.registry))
        if formats.output not in WITH_REGISTRY:
            yield ok("the schema registry answers")
            return
        key = Encoder(formats, Lookup(formats.registry)).key(settings.output.topic)
        subject = key.partition(":")[2].partition("\n")[0]
        level = registry.compatibility(subject)
    except (HapaxError, UnknownSchemaError) as error:
        yield fail(str(error), "see docs/schemas.md; a start waits for a registry, or ends with it")
        return
    if level == "NONE":
        yield warn(
            f"the subject {subject} takes any new version (compatibility NONE)",
            "set BACKWARD or stricter, or readers of the output meet data that they cannot read",
        )
    else:
        yield ok(f"the schema registry has {subject}, compatibility {level}")
