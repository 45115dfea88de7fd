"""Values of other serdes read by Hapax's codecs, and those of Hapax by them: bytes and data."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict, ParseDict

from hapax.core.errors import HapaxError, SchemasUnavailableError
from hapax.core.formats import FormatOptions, RegistryOptions
from hapax.core.records import Record
from hapax.schemas.codec import KINDS, Decoder, Encoder
from hapax.schemas.lookup import Lookup
from hapax.schemas.registry import Registry
from tests.kit.schema_registry import RegistryDouble
from tests.world.programs import ask, text

if TYPE_CHECKING:
    from hapax.core.formats import Format
    from tests.world.installed import Command
    from tests.world.programs import Client

    Value = tuple[bytes, tuple[tuple[str, bytes], ...]]

ORDER = {"id": 300, "note": None, "items": ["a", "ä"]}
AVRO = {
    "type": "record",
    "name": "world.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "items", "type": {"type": "array", "items": "string"}},
    ],
}
JSON = {"type": "object", "title": "Order", "properties": {"id": {"type": "integer"}}}
PROTO = """syntax = "proto3";
package world;
message First { string id = 1; }
message Second {
  message A { string id = 1; }
  message B { string id = 1; }
}
"""
DATA: dict[str, tuple[Format, dict[str, Any]]] = {
    "avro": ("avro", ORDER),
    "json": ("json-schema", ORDER),
    "First": ("protobuf", {"id": "ä"}),
    "Second.B": ("protobuf", {"id": "ä"}),
}
"""What is written: name → format and data; of Protobuf the name is that of the message."""


def _file() -> descriptor_pb2.FileDescriptorProto:
    """Return PROTO as its compiler does."""
    field = descriptor_pb2.FieldDescriptorProto
    made = descriptor_pb2.FileDescriptorProto(name="world.proto", package="world", syntax="proto3")
    first, second = made.message_type.add(name="First"), made.message_type.add(name="Second")
    for message in (first, second.nested_type.add(name="A"), second.nested_type.add(name="B")):
        message.field.add(
            name="id", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL, json_name="id"
        )
    return made


FILE = _file()
SCHEMAS: dict[Format, str] = {
    "avro": json.dumps(AVRO),
    "json-schema": json.dumps(JSON),
    "protobuf": PROTO,
}


def exchanged(apicurio: str, client: Client, command: Command) -> dict[str, str]:
    """Return question → answer, for each "what/form" that the client's section names.

    Confluent's clients find GUIDs and descriptors in the double alone: Apicurio 3.0 gives none.
    """
    with RegistryDouble() as double:
        answers = {}
        for words in client.words["forms"].split():
            what, form = words.split("/")
            needs_double = form == "header" or DATA[what][0] == "protobuf"
            own = needs_double and client.language != "Java"
            url = double.url if own else apicurio
            answers[f"{what}, {form}"] = _exchanged(url, what, form, command)
        return answers


def _exchanged(url: str, what: str, form: str, command: Command) -> str:
    kind, data = DATA[what]
    topic = f"world-{what}-{form}"
    registry = RegistryOptions(
        url=(url,), auto_register=True, placement="header" if form == "header" else "prefix"
    )
    subject = f"{topic}-value"
    Registry(registry).registered(subject, _registered(url, kind), KINDS[kind])
    options = FormatOptions(input=kind, output=kind, topic=topic, registry=registry)
    asked: dict[str, Any] = {
        "url": url,
        "topic": topic,
        "format": kind,
        "form": form,
        "message": f"world.{what}",
    }
    asked |= {"schema": SCHEMAS[kind], "descriptor": text(FILE.SerializeToString())}
    theirs = ask(command, "serdes", asked, [{"d": data}])
    if theirs.failure:
        return f"error: {theirs.failure}"
    value = _value(theirs.lines[0])
    ours = _ours(options, what, data)
    words = [_form(value, Registry(registry).latest(subject).id or 0), _read(options, what, value)]
    if ours is not None:
        words.append("the bytes of Hapax" if ours == value else _difference(value, ours))
        given = {"v": text(ours[0]), "h": [[name, text(told)] for name, told in ours[1]]}
        back = ask(command, "serdes", asked, [given])
        same = bool(back.lines) and back.lines[0].get("d") == data
        words.append("reads those of Hapax" if same else f"of Hapax: {back.failure or back.lines}")
    return " | ".join(words)


def _difference(theirs: Value, ours: Value) -> str:
    """Return which bytes differ, where both stand in front of the content."""
    if theirs[1] or ours[1]:
        return "other bytes"
    at = _shared(theirs[0], ours[0])
    one, other = theirs[0][at:], ours[0][at:]
    end = _shared(one[::-1], other[::-1])
    return f"`{one[: len(one) - end].hex(' ')}` for `{other[: len(other) - end].hex(' ')}`"


def _shared(one: bytes, other: bytes) -> int:
    """Return with how many bytes both begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _registered(url: str, kind: Format) -> str:
    is_double = "ccompat" not in url  # which takes descriptors alone, and gives them as texts
    as_text = base64.b64encode(FILE.SerializeToString()).decode()
    return as_text if is_double and kind == "protobuf" else SCHEMAS[kind]


def _kind(what: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(FILE)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"world.{what}"))


def _ours(options: FormatOptions, what: str, data: dict[str, Any]) -> Value | None:
    """Return what Hapax writes. None: not in this form."""
    kind = options.output
    given = ParseDict(data, _kind(what)()) if kind == "protobuf" else data
    try:
        value, headers = Encoder(options, Lookup(options.registry)).encode(given, None)
    except HapaxError:
        return None
    return value or b"", tuple((name, told or b"") for name, told in headers)


def _read(options: FormatOptions, what: str, value: Value) -> str:
    kind = _kind(what) if options.input == "protobuf" else Any
    decoder = Decoder(options, Lookup(options.registry), kind)
    try:
        data = decoder.decode(Record(options.topic, 0, 0, None, *value))
    except SchemasUnavailableError:
        return "Hapax takes something else for the id, and waits"
    except HapaxError:
        return "for Hapax a dead letter"
    found = MessageToDict(data) if options.input == "protobuf" else data
    return "Hapax reads it" if found == DATA[what][1] else f"Hapax reads {found}"


def _form(value: Value, schema_id: int) -> str:
    """Return what stands before the content, as far as it is the schema's name."""
    content, headers = value
    names = ", ".join(f"`{name}` of {len(told)} bytes" for name, told in headers)
    if names:
        return f"headers {names}"
    for size in (8, 4):
        if content.startswith(b"\0" + schema_id.to_bytes(size, "big")):
            return f"0x00, id in {size} bytes"
    return f"begins {content[:6].hex(' ')}"


def _value(line: dict[str, Any]) -> Value:
    headers = tuple((name, base64.b64decode(told)) for name, told in line["h"])
    return base64.b64decode(line["v"]), headers
