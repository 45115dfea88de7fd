"""Protobuf, by its own library: generated classes, or classes made of the registry's descriptor."""

from __future__ import annotations

import base64
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hapax.core.errors import Poison, SchemasUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.schemas.registry import Schema

_VARINT_BYTES_MAX = 10
_FIRST = (0,)
_KNOWN = ("google/protobuf/", "google/type/", "confluent/")
"""Serializers of Confluent's give no reference for imports of these."""
FIRST_BYTES = b"\0"
"""The path to the first message, and its short form."""


def is_message(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "DESCRIPTOR") and hasattr(kind, "FromString")


class Messages:
    """The messages of one schema, by their path in the file."""

    def __init__(self, schema: Schema) -> None:
        """Read the descriptor; a missing one shows when a message is made."""
        from google.protobuf import descriptor_pool

        self.at = cache(self._made)
        self._file: Any = None
        if schema.serialized is None:
            return
        files = {
            one.name: _file(one.name, base64.b64decode(one.serialized or ""))
            for one in schema.references
        }
        own = _file("", base64.b64decode(schema.serialized))
        pool = descriptor_pool.DescriptorPool()
        _add(pool, own, files, set())
        self._file = pool.FindFileByName(own.name)

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

    def name_at(self, path: tuple[int, ...]) -> str | None:
        """Return the full name of a message; None where the registry gave no descriptor."""
        return None if self._file is None else str(self._descriptor(path).full_name)

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

    messages, generated = Messages(schema), is_message(kind)

    def decode(rest: bytes, content: bytes) -> Any:
        path, size = path_of(rest or content)
        body = content if rest else content[size:]
        if not generated:
            message = messages.at(path).FromString(body)
            return MessageToDict(message, preserving_proto_field_name=True)
        name, ours = messages.name_at(path), kind.DESCRIPTOR.full_name
        if name is not None and name != ours:
            raise Poison(f"it is a {name}, and the function takes {ours}")
        return kind.FromString(body)

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


def _file(name: str, content: bytes) -> Any:
    from google.protobuf import descriptor_pb2

    file: Any = descriptor_pb2.FileDescriptorProto.FromString(content)
    file.name = name or file.name or "schema.proto"
    return file


def _add(pool: Any, file: Any, files: dict[str, Any], added: set[str]) -> None:
    """Add a file after what it imports: other files of the registry, or those that all know."""
    added.add(file.name)
    for name in file.dependency:
        if name not in added:
            _add(pool, files.get(name) or _known(name), files, added)
    pool.Add(file)


def _known(name: str) -> Any:
    """Return a file that needs no reference in the registry. Raise ImportError for any other."""
    if not name.startswith(_KNOWN):
        raise ImportError(f"{name} is none of the references of the schema")
    at = "confluent_kafka.schema_registry." if name.startswith("confluent/") else ""
    module = import_module(at + name.removesuffix(".proto").replace("/", ".") + "_pb2")
    return _file(name, module.DESCRIPTOR.serialized_pb)


def path_of(text: bytes) -> tuple[tuple[int, ...], int]:
    """Return the path to a message and how many bytes it took; raise Poison."""
    count, at = _varint(text, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= len(text):
        raise Poison(f"a path of {count} steps leads to no message")
    path = []
    for _ in range(count):
        step, at = _varint(text, at)
        if step < 0:
            raise Poison(f"a path with {step} in it leads to no message")
        path.append(step)
    return tuple(path), at


def path_bytes(path: tuple[int, ...]) -> bytes:
    if path == (0,):
        return b"\x00"
    return b"".join(map(_zigzag, (len(path), *path)))


def _varint(text: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    for index in range(at, min(at + _VARINT_BYTES_MAX, len(text))):
        found |= (text[index] & 0x7F) << shift
        shift += 7
        if not text[index] & 0x80:
            return (found >> 1) ^ -(found & 1), index + 1
    raise Poison("the path to the message is cut off")


def _zigzag(number: int) -> bytes:
    left, out = number << 1, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
