"""Protobuf, by its own library: generated classes, or classes made of the registry's descriptor."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from hapax.core.errors import Poison, SchemasUnavailableError
from hapax.schemas.wire import path_bytes, path_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.schemas.registry import Schema


def is_message(kind: Any) -> bool:
    """Whether this is a generated class."""
    return isinstance(kind, type) and hasattr(kind, "DESCRIPTOR") and hasattr(kind, "FromString")


class Messages:
    """The messages of one schema, by their path in the file."""

    def __init__(self, schema: Schema) -> None:
        """Read the descriptor; a missing one shows when a message is made."""
        from google.protobuf import descriptor_pb2, descriptor_pool

        self._classes: dict[tuple[int, ...], Any] = {}
        self._file: Any = None
        if schema.serialized is None:
            return
        pool = descriptor_pool.DescriptorPool()
        _add_known(pool)
        for name, text in [(one.name, one.serialized) for one in schema.references]:
            file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text or ""))
            file.name = name
            pool.Add(file)
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.serialized))
        file.name = file.name or "schema.proto"
        pool.Add(file)
        self._file = pool.FindFileByName(file.name)

    def at(self, path: tuple[int, ...]) -> Any:
        """Return the class of a message; raise Poison where the path leads to none.

        Raises SchemasUnavailableError where the registry gave no descriptor.
        """
        found = self._classes.get(path)
        if found is None:
            found = self._classes[path] = self._made(path)
        return found

    def name_at(self, path: tuple[int, ...]) -> str | None:
        """Return the full name of a message; None where the registry gave no descriptor."""
        return None if self._file is None else str(self._descriptor(path).full_name)

    def _made(self, path: tuple[int, ...]) -> Any:
        from google.protobuf import message_factory

        if self._file is None:
            # No record is to blame, and no waiting helps: the process stops and says so.
            raise SchemasUnavailableError(
                "the schema registry gives no descriptor of this schema: annotate the record with a"
                " generated class, record: Record[Order], and return messages of one",
                refused=True,
            )
        return message_factory.GetMessageClass(self._descriptor(path))

    def _descriptor(self, path: tuple[int, ...]) -> Any:
        messages = list(self._file.message_types_by_name.values())
        found: Any = None
        for step in path:
            if step >= len(messages):
                raise Poison(f"the path {path} leads to no message of the schema")
            found = messages[step]
            messages = list(found.nested_types)
        return found


def reader(schema: Schema, kind: Any) -> Callable[[bytes, bytes], Any]:
    """Return what decodes content, whose path may stand before it, as ``kind`` or as a dict."""
    from google.protobuf.json_format import MessageToDict

    messages = Messages(schema)
    generated = is_message(kind)

    def decode(rest: bytes, content: bytes) -> Any:
        path, size = path_of(rest or content)
        body = content if rest else content[size:]
        if generated:
            name = messages.name_at(path)
            if name is not None and name != kind.DESCRIPTOR.full_name:
                raise Poison(f"it is a {name}, and the function takes {kind.DESCRIPTOR.full_name}")
            return kind.FromString(body)
        message = messages.at(path).FromString(body)
        return MessageToDict(message, preserving_proto_field_name=True)

    return decode


def writer(schema: Schema) -> Callable[[Any], tuple[bytes, bytes]]:
    """Return what encodes a message, or a dict for the first message: its path and its content."""
    from google.protobuf.json_format import ParseDict
    from google.protobuf.message import Message

    messages = Messages(schema)
    paths: dict[str, bytes] = {}

    def encode(data: Any) -> tuple[bytes, bytes]:
        if not isinstance(data, Message):
            return b"\x00", ParseDict(data, messages.at((0,))()).SerializeToString()
        name = data.DESCRIPTOR.full_name
        known = paths.get(name)
        if known is None:
            path = _path(data.DESCRIPTOR)
            there = messages.name_at(path)
            if there is not None and there != name:
                raise Poison(f"the schema of the outputs has {there} where {name} should be")
            known = paths[name] = path_bytes(path)
        return known, data.SerializeToString()

    return encode


def _path(descriptor: Any) -> tuple[int, ...]:
    path: list[int] = []
    while descriptor is not None:
        within = descriptor.containing_type
        siblings = (
            list(descriptor.file.message_types_by_name.values())
            if within is None
            else list(within.nested_types)
        )
        path.insert(0, [one.full_name for one in siblings].index(descriptor.full_name))
        descriptor = within
    return tuple(path)


def _add_known(pool: Any) -> None:
    """Add the types that every schema may import."""
    from google.protobuf import (
        any_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    for module in (
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    ):
        file: Any = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        pool.Add(file)
