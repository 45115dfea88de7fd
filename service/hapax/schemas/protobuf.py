"""Protobuf, by its own library: generated classes, or classes made of the registry's descriptor."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from hapax.core.errors import Poison, SchemasUnavailableError
from hapax.schemas.wire import path_bytes, path_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.schemas.registry import Schema


_FIRST = (0,)
FIRST_BYTES = b"\0"
"""The path to the first message, and its short form."""


def is_message(kind: Any) -> bool:
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
        """Raise Poison for a path to no message, SchemasUnavailableError without a descriptor."""
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
    """Return what decodes content, whose path may come before it, as ``kind`` or as a dict."""
    from google.protobuf.json_format import MessageToDict

    messages = Messages(schema)

    def decode(rest: bytes, content: bytes) -> Any:
        path, size = path_of(rest or content)
        message = messages.at(path).FromString(content if rest else content[size:])
        return MessageToDict(message, preserving_proto_field_name=True)

    return _generated(messages, kind) if is_message(kind) else decode


def _generated(messages: Messages, kind: Any) -> Callable[[bytes, bytes], Any]:
    made, ours = kind.FromString, kind.DESCRIPTOR.full_name

    def decode(rest: bytes, content: bytes) -> Any:
        path, size = path_of(rest or content)
        name = messages.name_at(path)
        if name is not None and name != ours:
            raise Poison(f"it is a {name}, and the function takes {ours}")
        return made(content if rest else content[size:])

    return decode


def writer(schema: Schema, prefix: bytes, as_dict: Callable[[Any], Any]) -> Callable[[Any], bytes]:
    """Return what encodes a message, or other data for the first message: prefix, path, content.

    ``as_dict`` returns the JSON form of data that is no message.
    """
    from google.protobuf.json_format import ParseDict
    from google.protobuf.message import Message

    messages = Messages(schema)
    heads: dict[type, bytes] = {}

    def encode(data: Any) -> bytes:
        try:
            head = heads[type(data)]
        except KeyError:
            if not isinstance(data, Message):
                data = ParseDict(as_dict(data), messages.at(_FIRST)())
                head = prefix + FIRST_BYTES
            else:
                head = heads[type(data)] = prefix + path_bytes(_checked_path(messages, data))
        content: bytes = data.SerializeToString()
        return head + content

    return encode


def _checked_path(messages: Messages, data: Any) -> tuple[int, ...]:
    path, name = _path(data.DESCRIPTOR), data.DESCRIPTOR.full_name
    there = messages.name_at(path)
    if there is not None and there != name:
        raise Poison(f"the schema of the outputs has {there} where {name} should be")
    return path


def name_of(text: str) -> str | None:
    """Return the full name of the first message of a ``.proto`` text."""
    package = name = None
    for line in text.splitlines():
        words = line.replace("{", " ").replace(";", " ").split()
        if words[:1] == ["package"] and len(words) > 1:
            package = words[1]
        if words[:1] == ["message"] and len(words) > 1 and name is None:
            name = words[1]
    return f"{package}.{name}" if package and name else name


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
