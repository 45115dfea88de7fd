"""Rules of formats and the schema registry that settings must keep together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.core.formats import WITH_REGISTRY
from hapax.core.id_sources import id_source
from hapax.settings.base import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.settings.model import Settings

_INPUT: Final = "HAPAX_INPUT__FORMAT"
_OUTPUT: Final = "HAPAX_OUTPUT__FORMAT"
_ID: Final = "HAPAX_DEDUP__ID"
_BINARY: Final = ("avro", "protobuf")
_SCHEMA: Final = "HAPAX_OUTPUT__SCHEMA"
_REGISTRY: Final = "HAPAX_REGISTRY__"
_URL: Final = f"{_REGISTRY}URL"


def schema_problems(settings: Settings) -> Iterator[Problem]:
    """Yield every rule that these settings break."""
    registry, output = settings.registry, settings.output
    for name, value in ((_INPUT, settings.input.format), (_OUTPUT, output.format)):
        if value in WITH_REGISTRY and registry.url is None:
            yield Problem(
                (name, _URL),
                f"{name}={value} needs {_URL}, which is unset: name the registry, or choose bytes"
                " or json",
            )
        if value != "bytes" and settings.spark.dataframe is not None:
            yield Problem(
                (name, "HAPAX_SPARK__DATAFRAME"),
                f"{name}={value} is for functions of records: a DataFrame decodes its values itself"
                " (from_avro, from_json); unset one of them",
            )
    if output.format in WITH_REGISTRY:
        yield from _subjects(settings)
    if settings.input.reader_schema is not None and settings.input.format != "avro":
        yield Problem(
            ("HAPAX_INPUT__READER_SCHEMA", _INPUT),
            f"HAPAX_INPUT__READER_SCHEMA is set but {_INPUT}={settings.input.format} does not use"
            " it: choose avro, or remove it",
        )
    first = settings.dedup.id[0]
    if settings.input.format in _BINARY and "json" in id_source(first).kind.split("+"):
        yield Problem(
            (_ID, _INPUT),
            f"{_ID} begins with {first}, which can match nothing: values of {_INPUT}="
            f"{settings.input.format} are no JSON. Begin with a header or the key",
        )
    yield from _login(settings)


def _subjects(settings: Settings) -> Iterator[Problem]:
    registry, schema = settings.registry, settings.output.schema_file
    if registry.subjects != "topic" and schema is None:
        yield Problem(
            (f"{_REGISTRY}SUBJECTS", _SCHEMA),
            f"{_REGISTRY}SUBJECTS={registry.subjects} needs {_SCHEMA}, which is unset: the subject"
            " is named after the record in that schema",
        )
    if registry.auto_register and schema is None:
        yield Problem(
            (f"{_REGISTRY}AUTO_REGISTER", _SCHEMA),
            f"{_REGISTRY}AUTO_REGISTER=true needs {_SCHEMA}, which is unset: name the file with the"
            " schema to register",
        )


def _login(settings: Settings) -> Iterator[Problem]:
    registry = settings.registry
    for name, needed, missing in (
        ("USER", "PASSWORD", registry.user is not None and registry.password is None),
        ("PASSWORD", "USER", registry.password is not None and registry.user is None),
        ("CERTIFICATE_FILE", "KEY_FILE", _without(registry.certificate_file, registry.key_file)),
        ("KEY_FILE", "CERTIFICATE_FILE", _without(registry.key_file, registry.certificate_file)),
    ):
        if missing:
            yield Problem(
                (_REGISTRY + name, _REGISTRY + needed),
                f"{_REGISTRY}{name} needs {_REGISTRY}{needed}, which is unset: set both or neither",
            )
    if registry.token is not None and registry.user is not None:
        yield Problem(
            (f"{_REGISTRY}TOKEN", f"{_REGISTRY}USER"),
            f"{_REGISTRY}TOKEN is set, and so is {_REGISTRY}USER: a request has one login; unset"
            " one of them",
        )


def _without(one: str | None, other: str | None) -> bool:
    return one is not None and other is None
