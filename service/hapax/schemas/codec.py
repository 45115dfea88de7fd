"""Values to data, and data to values, by the formats that the settings name.

How a value names its schema: by a prefix of its own, or in a header.

prefix  0x00, the id in four bytes, then of Protobuf the path to the message
header  ``__value_schema_id``: 0x00 and the id, or 0x01 and a GUID; of Protobuf the path after it

What goes wrong has one of two names: SchemasUnavailableError where a schema is not to be had now,
and Poison for all that lies in the record: bytes that cannot be decoded, data that does not fit.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hapax.core.errors import ConfigurationError, HapaxError, Poison, SchemasUnavailableError
from hapax.core.formats import WITH_REGISTRY, FormatOptions
from hapax.core.headers import VALUE_SCHEMA
from hapax.core.json_pointer import unmarked
from hapax.schemas import avro, json_schema, protobuf, typed
from hapax.schemas.registry import Schema, UnknownSchemaError, tls

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.core.records import Headers, Record
    from hapax.schemas.lookup import Lookup

    Reader = Callable[[bytes, bytes], Any]
    Short = Callable[[bytes], Any]
    Writer = tuple[Callable[[Any], bytes], Headers]

BY_ID: Final = 0
BY_GUID: Final = 1
ID_BYTES: Final = 5
GUID_BYTES: Final = 17
KINDS: Final[dict[str, str]] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}
_LIBRARIES: Final = {
    "avro": "fastavro",
    "protobuf": "google.protobuf",
    "json-schema": "jsonschema_rs",
}
_NAMES: Final = {"avro": avro.name_of, "json-schema": json_schema.name_of}


def split(value: bytes, headers: Headers) -> tuple[str | int, bytes, bytes]:
    """Return of a value: its id or the GUID in hexadecimal; what follows it there; the content.

    ``What follows`` is the header's rest, where a header names the schema. Raises Poison.
    """
    if headers:
        for name, told in headers:
            if name == VALUE_SCHEMA and told is not None:
                schema, size = _schema(told, f"header {VALUE_SCHEMA}")
                return schema, told[size:], value
    schema, size = _schema(value, "value")
    return schema, b"", value[size:]


def _schema(text: bytes, what: str) -> tuple[str | int, int]:
    if len(text) >= ID_BYTES and text[0] == BY_ID:
        return int.from_bytes(text[1:ID_BYTES], "big"), ID_BYTES
    if len(text) >= GUID_BYTES and text[0] == BY_GUID:
        return text[1:GUID_BYTES].hex(), GUID_BYTES
    raise Poison(
        f"the {what} does not begin with 0 and a schema id, or 1 and a GUID: {text[:GUID_BYTES]!r}"
    )


def prefix_of(schema_id: int) -> bytes:
    return bytes([BY_ID]) + schema_id.to_bytes(ID_BYTES - 1, "big")


def require(formats: FormatOptions) -> None:
    for name, value in (("INPUT", formats.input), ("OUTPUT", formats.output)):
        library = _LIBRARIES.get(value)
        if library is not None and not _installed(library):
            problem = f"HAPAX_{name}__FORMAT={value} needs a library that is not installed"
            raise ConfigurationError(f"{problem}. Run: pip install 'hapax-kafka[registry]'")


def _installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:
        return False


class Decoder:
    """Decodes values. ``kind``: the type of the data, as the function's annotation has it.

    decode  returns the data of a record; None of one without a value. Raises as the module says
    """

    def __init__(self, formats: FormatOptions, lookup: Lookup, kind: Any) -> None:
        self._format = formats.input
        self._lookup = lookup
        self._kind = kind
        # The JSON form of Protobuf has numbers of 64 bits as text.
        self._shape = typed.shape(kind, strict=formats.input != "protobuf")
        exact = formats.input == "json-schema" and isinstance(self._shape, partial)
        self._exact = typed.json_reader(kind) if exact else None
        self._marked = formats.output == "avro" and self._shape is typed.as_it_is
        self._resolved_to = None if formats.reader is None else text_of(formats.reader, "INPUT")
        self._readers: dict[str | int, Reader] = {}
        # What comes before nearly all values, and what reads the rest of them.
        self._short: dict[bytes, Short] = {}
        self._head_bytes = ID_BYTES + (formats.input == "protobuf")
        self._json = typed.json_reader(kind if formats.input == "json" else Any)
        self.decode: Callable[[Record], Any] = {
            "bytes": lambda _record: None,
            "json": self._of_json,
        }.get(formats.input, self._of_schema)

    def _of_json(self, record: Record) -> Any:
        if record.value is None:
            return None
        problem = "it is no JSON of the type that is expected"
        return self._checked(self._json, unmarked(record.value), problem)

    def _of_schema(self, record: Record) -> Any:
        value = record.value
        if value is None:
            return None
        size = self._head_bytes
        read, content = self._short.get(value[:size]), value[size:]
        for name, _told in record.headers:
            if name == VALUE_SCHEMA:
                read = None
        if read is None:
            schema, rest, content = split(value, record.headers)
            read = partial(self._readers.get(schema) or self._reader(schema), rest)
        try:
            return read(content)
        except HapaxError:
            raise
        except Exception as error:
            schema, _rest, _content = split(value, record.headers)
            raise _poison(f"it cannot be decoded by schema {schema}", error) from error

    def _reader(self, schema: str | int) -> Reader:
        if protobuf.is_message(self._kind):
            found = Schema(text="", kind="PROTOBUF")  # a generated class needs nothing else
        else:
            found = self._lookup.get(key_of(schema))
        if found.kind != KINDS[self._format]:
            raise Poison(f"schema {schema} is {found.kind}, but HAPAX_INPUT__FORMAT={self._format}")
        made: Reader = self._checked(self._made, found, f"schema {schema} cannot be used")
        self._readers[schema] = made
        if isinstance(schema, int):
            path = protobuf.FIRST_BYTES if self._format == "protobuf" else b""
            generated = bool(path) and protobuf.is_message(self._kind)
            short = self._kind.FromString if generated else partial(made, path)
            self._short[prefix_of(schema) + path] = short
        return made

    def _made(self, schema: Schema) -> Reader:
        shape = self._shape
        if self._format == "protobuf":
            message = protobuf.reader(schema, self._kind)
            if shape is typed.as_it_is:
                return message
            return lambda rest, content: shape(message(rest, content))
        read = (
            avro.reader(schema, self._resolved_to, marked=self._marked)
            if self._format == "avro"
            else json_schema.reader(schema, self._exact)
        )
        if shape is typed.as_it_is:
            return lambda _rest, content: read(content)
        return lambda _rest, content: shape(read(content))

    def _checked(self, step: Callable[[Any], Any], given: Any, problem: str) -> Any:
        try:
            return step(given)
        except HapaxError:
            raise
        except Exception as error:
            raise _poison(problem, error) from error


class Encoder:
    """Encodes data by the schema of its topic."""

    def __init__(self, formats: FormatOptions, lookup: Lookup) -> None:
        self._formats = formats
        self._topic = formats.topic
        self._lookup = lookup
        self._writers: dict[str, Writer] = {}

    def encode(self, data: Any, topic: str | None) -> tuple[bytes | None, Headers]:
        """Return the value, and the headers that belong to it; raises as the module says."""
        if data is None:
            return None, ()
        topic = topic or self._topic
        try:
            write, headers = self._writers[topic]
        except KeyError:
            write, headers = self._writer(topic)
        try:
            return write(data), headers
        except HapaxError:
            raise
        except Exception as error:
            raise _poison(f"its output does not fit the schema of {topic}", error) from error

    def key(self, topic: str) -> str:
        """Return by what the schema of a topic is looked up. Raises ConfigurationError."""
        formats = self._formats
        subject = self._subject(topic)
        if formats.schema is None:
            return f"subject:{subject}"
        return f"subject:{subject}\n{KINDS[formats.output]} {formats.schema}"

    def _subject(self, topic: str) -> str:
        formats, names = self._formats, self._formats.registry.subjects
        if names == "topic":
            return f"{topic}-value"
        named = _NAMES.get(formats.output, protobuf.name_of)
        name = named(text_of(formats.schema or "", "OUTPUT"))
        if not name:
            raise ConfigurationError(
                f"HAPAX_REGISTRY__SUBJECTS={names} needs a name, and the schema in"
                f" HAPAX_OUTPUT__SCHEMA={formats.schema} has none: give it one, or choose topic"
            )
        return name if names == "record" else f"{topic}-{name}"

    def _writer(self, topic: str) -> Writer:
        if self._formats.output == "json":
            made: Writer = (typed.json_bytes, ())
        else:
            made = self.made(topic, self._lookup.get(self.key(topic)))
        self._writers[topic] = made
        return made

    def made(self, topic: str, schema: Schema) -> Writer:
        """Return what encodes for a topic. Raises Poison where the schema does not serve."""
        formats = self._formats
        if schema.kind != KINDS[formats.output]:
            raise Poison(
                f"the schema of {topic} is {schema.kind}, but HAPAX_OUTPUT__FORMAT={formats.output}"
            )
        prefix, mark = head_of(schema, in_header=formats.registry.placement == "header")
        if formats.output == "protobuf":
            if mark:
                raise Poison("HAPAX_REGISTRY__PLACEMENT=header is for avro and json-schema")
            plain = partial(typed.plain_json_first, typed.as_it_is)
            return protobuf.writer(schema, prefix, plain), ()
        headers = ((VALUE_SCHEMA, mark),) if mark else ()
        if formats.output == "avro":
            return avro.writer(schema, prefix), headers
        return partial(typed.plain_json_first, json_schema.writer(schema, prefix)), headers


def key_of(schema: str | int) -> str:
    return f"{'id' if isinstance(schema, int) else 'guid'}:{schema}"


def text_of(path: str, side: str) -> str:
    """Return the text of a schema file; raise ConfigurationError."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        name = "HAPAX_OUTPUT__SCHEMA" if side == "OUTPUT" else "HAPAX_INPUT__READER_SCHEMA"
        raise ConfigurationError(f"{name}={path} cannot be read: {error}") from error


def head_of(schema: Schema, *, in_header: bool) -> tuple[bytes, bytes]:
    if in_header:
        if schema.guid is None:
            raise Poison(
                "the schema registry gives no GUID of this schema, which headers need: choose"
                " HAPAX_REGISTRY__PLACEMENT=prefix"
            )
        return b"", bytes([BY_GUID]) + bytes.fromhex(schema.guid)
    if schema.id is None:
        raise Poison("the schema registry gives no id of this schema")
    return prefix_of(schema.id), b""


def _poison(problem: str, error: Exception) -> Poison:
    return Poison(f"{problem}: {type(error).__name__}: {error}"[:800])


def check_output(formats: FormatOptions, lookup: Lookup) -> None:
    """Raise SchemasUnavailableError, or ConfigurationError where the registry lacks the schema."""
    require(formats)
    try:
        tls(formats.registry)
    except (OSError, ValueError) as error:
        raise ConfigurationError(str(error)) from None
    if formats.output not in WITH_REGISTRY:
        return
    encoder = Encoder(formats, lookup)
    key = encoder.key(formats.topic)
    if formats.schema is not None:
        text_of(formats.schema, "OUTPUT")
    subject = key.partition(":")[2].partition("\n")[0]
    try:
        schema = lookup.first(key)
        encoder.made(formats.topic, schema)
    except SchemasUnavailableError:
        raise
    except UnknownSchemaError as error:
        what = "this schema" if formats.schema else "the subject"
        raise ConfigurationError(
            f"HAPAX_OUTPUT__FORMAT={formats.output}: the schema registry does not have {what} in"
            f" {subject} ({error}): register it, or set HAPAX_OUTPUT__SCHEMA and"
            " HAPAX_REGISTRY__AUTO_REGISTER=true"
        ) from None
    except Exception as error:
        problem = f"HAPAX_OUTPUT__FORMAT={formats.output}: the schema in {subject}: {error}"
        raise ConfigurationError(problem) from error
