"""Formats of values: what the settings say, as it travels to where calls are made."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Format = Literal["bytes", "json", "avro", "protobuf", "json-schema"]
SubjectNames = Literal["topic", "record", "topic-record"]
AfterGrace = Literal["hold", "dead-letter"]
Placement = Literal["prefix", "header"]
WITH_REGISTRY = frozenset({"avro", "protobuf", "json-schema"})


class Secret(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A secret: its text, and the file that has it now; no text of it is ever shown."""

    text: str = ""
    path: str | None = None

    def __repr__(self) -> str:
        return "***"


class RegistryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A schema registry, and what to do when it does not know.

    url         addresses, asked one after the other
    wait_s      how long a call waits for an answer, which takes up to timeout_ms in the background
    cache       folder of schemas that were fetched; None: they are kept in memory alone
    grace_ms    how long a schema that the registry does not know or denies is waited for

    Its fields are those of the settings, from which it is made by their names.
    """

    url: tuple[str, ...] | None = None
    user: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    oauth_token_url: str | None = None
    oauth_client_id: str | None = None
    oauth_client_secret: Secret | None = None
    oauth_scope: str | None = None
    logical_cluster: str | None = None
    identity_pool: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: Secret | None = None
    timeout_ms: int = 5_000
    wait_s: float = 1.0
    cache: str | None = None
    grace_ms: int = 60_000
    after_grace: AfterGrace = "hold"
    subjects: SubjectNames = "topic"
    auto_register: bool = False
    placement: Placement = "prefix"

    @property
    def urls(self) -> tuple[str, ...]:
        return self.url or ()


class FormatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How values become data, and data values.

    topic   of outputs that name none themselves
    schema  file with the schema of outputs; None: the latest of the subject in the registry
    reader  file with the schema that Avro records are resolved to; None: that of their writer
    """

    input: Format = "bytes"
    output: Format = "bytes"
    topic: str = ""
    schema: str | None = None
    reader: str | None = None
    registry: RegistryOptions = RegistryOptions()

    @property
    def plain(self) -> bool:
        return self.input == self.output == "bytes"

    @property
    def needs_registry(self) -> bool:
        return not WITH_REGISTRY.isdisjoint((self.input, self.output))


BYTES: Final = FormatOptions()
"""Values stay bytes: nothing is decoded."""
