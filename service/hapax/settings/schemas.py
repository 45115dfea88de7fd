"""Settings of the schema registry."""

from typing import Annotated, Any, Final

from pydantic import Field, SecretStr

from hapax.core.formats import AfterGrace, Placement, RegistryOptions, Secret, SubjectNames
from hapax.core.headers import VALUE_SCHEMA
from hapax.settings.base import SettingsGroup
from hapax.settings.validators import HTTP_URLS, PATH, SECRET, TEXT
from hapax.settings.value_types import choice, duration, flag

_WAIT_S: Final = 1.0
"""Longest wait of a call for a schema: waiting is no fault of the call's."""


class RegistrySettings(SettingsGroup):
    """Where schemas come from, for formats that have them."""

    url: Annotated[tuple[str, ...] | None, HTTP_URLS] = Field(
        default=None,
        repr=False,
        description="Schema registry with the API of Confluent's; of several, comma separated, "
        "each is asked until one answers.",
    )
    user: Annotated[str | None, TEXT] = Field(
        default=None, description="User of the registry, for basic authentication."
    )
    password: Annotated[SecretStr | None, SECRET] = Field(
        default=None, description="Password of that user."
    )
    token: Annotated[SecretStr | None, SECRET] = Field(
        default=None, description="Bearer token, in place of user and password."
    )
    ca_file: Annotated[str | None, PATH] = Field(
        default=None,
        description="PEM file of the authorities that may sign the registry's certificate. "
        "Unset: those of the system.",
    )
    certificate_file: Annotated[str | None, PATH] = Field(
        default=None,
        description="PEM file of the client certificate, for a registry that requires one.",
    )
    key_file: Annotated[str | None, PATH] = Field(
        default=None, description="PEM file of the certificate's private key."
    )
    key_password: Annotated[SecretStr | None, SECRET] = Field(
        default=None, description="Password of the private key."
    )
    timeout_ms: Annotated[int, duration("100ms", "30s")] = Field(
        default=5_000,
        alias="timeout",
        description="How long one answer of the registry may take before it counts as away.",
    )
    cache: Annotated[str | None, PATH] = Field(
        default=None,
        description="Folder in which schemas are kept once they were fetched, so that a start "
        "needs no registry. Unset: they are kept in memory alone.",
    )
    grace_ms: Annotated[int, duration("0ms", "24h")] = Field(
        default=60_000,
        alias="grace",
        description="How long a record waits for a schema id that the registry does not know: "
        "replicas of a registry learn of a new one late.",
    )
    after_grace: Annotated[AfterGrace, choice(AfterGrace)] = Field(
        default="hold",
        description="What becomes of it then: its partition waits on, or it is a dead letter.",
    )
    subjects: Annotated[SubjectNames, choice(SubjectNames)] = Field(
        default="topic",
        description="Subject of the outputs' schema: `<topic>-value`, the name of the record, or "
        "`<topic>-<record>`.",
    )
    auto_register: Annotated[bool, flag()] = Field(
        default=False,
        description="Whether the schema of HAPAX_OUTPUT__SCHEMA is registered where the subject "
        "does not have it; needs the right to write.",
    )
    placement: Annotated[Placement, choice(Placement)] = Field(
        default="prefix",
        description="Where outputs name their schema: five bytes before the value, or the header "
        f"`{VALUE_SCHEMA}`. Of inputs both are read.",
    )

    def options(self, call_ms: int | None) -> RegistryOptions:
        """Return the same as it travels to where calls are made; ``call_ms``: the longest call."""
        names = RegistryOptions.__struct_fields__
        given = {name: _travelling(getattr(self, name)) for name in names if name != "wait_s"}
        wait_s = _WAIT_S if call_ms is None else min(_WAIT_S, call_ms / 2000)
        return RegistryOptions(**given, wait_s=wait_s)


def _travelling(value: Any) -> Any:
    if not isinstance(value, SecretStr):
        return value
    return Secret(value.get_secret_value(), getattr(value, "path", None))
