"""Business code with data: its records are decoded before the call, its answers encoded after it.

The form stays what it was, so that every engine, the audit and tests call it as before. A record
has its data while business code has the record, no longer: a batch keeps bytes alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import force_setattr, replace

from hapax.core.errors import ConfigurationError
from hapax.core.headers import VALUE_SCHEMA
from hapax.core.records import Output, Record
from hapax.processing.transform import TransformForm, data_type, identity
from hapax.schemas.codec import Decoder, Encoder, head_of, key_of, require, split
from hapax.schemas.lookup import Lookup, lookup_of

if TYPE_CHECKING:
    from hapax.core.formats import FormatOptions
    from hapax.schemas.registry import Schema


def with_data(form: TransformForm, formats: FormatOptions) -> TransformForm:
    """Leave context managers unchanged until they are entered; raise ConfigurationError."""
    if formats.plain or form.context:
        return form
    require(formats)
    function: Callable[..., Any] | None = form.function
    if identity in {function, getattr(function, "__wrapped__", None)}:
        if "bytes" in {formats.input, formats.output}:
            return form
        function, kind = None, Any
    else:
        try:
            kind = data_type(form.annotation)
        except ValueError as error:
            raise ConfigurationError(f"HAPAX_TRANSFORM: it {error}") from error
    lookup = lookup_of(formats)
    encoder = Encoder(formats, lookup)
    if function is None:
        same = formats.input == formats.output == "avro"
        function = partial(_converted, Unchanged(formats, lookup, encoder).output if same else None)
    around = _Around(Decoder(formats, lookup, kind), encoder, formats)
    return replace(form, function=around.wrapped(form, function))


def _converted(unchanged: Callable[[Record], Output | None] | None, record: Record) -> Output:
    return (unchanged and unchanged(record)) or Output(record.data)


class _Around:
    def __init__(self, decoder: Decoder, encoder: Encoder, formats: FormatOptions) -> None:
        self._decode = decoder.decode
        self._encode = encoder.encode
        self._decodes = formats.input != "bytes"
        self._encodes = formats.output != "bytes"

    def wrapped(self, form: TransformForm, function: Callable[..., Any]) -> Callable[..., Any]:
        if form.asynchronous:
            return self._awaited(function, lists=form.lists)
        return self._listed(function) if form.lists else self._single(function)

    def _single(self, function: Callable[..., Any]) -> Callable[..., Any]:
        decode, encoded, decodes = self._decode, self._encoded, self._decodes

        def call(record: Record) -> Any:
            if decodes:
                force_setattr(record, "data", decode(record))
            try:
                return encoded(function(record))
            finally:
                force_setattr(record, "data", None)

        return call

    def _listed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(records: list[Record]) -> Any:
            with self._with_data(records):
                return self._all_encoded(function(records))

        return call

    def _awaited(self, function: Callable[..., Any], *, lists: bool) -> Callable[..., Any]:
        async def call(given: Any) -> Any:
            with self._with_data(given if lists else [given]):
                answer = await function(given)
                return self._all_encoded(answer) if lists else self._encoded(answer)

        return call

    @contextmanager
    def _with_data(self, records: list[Record]) -> Iterator[None]:
        try:
            if self._decodes:
                for record in records:
                    force_setattr(record, "data", self._decode(record))
            yield
        finally:
            for record in records:
                force_setattr(record, "data", None)

    def _all_encoded(self, answers: Any) -> Any:
        """Encode what a function of a list has answered; what cannot be fails its record alone."""
        if not isinstance(answers, list | tuple):
            return answers
        made: list[Any] = []
        for answer in answers:
            try:
                made.append(answer if isinstance(answer, BaseException) else self._encoded(answer))
            except Exception as error:
                made.append(error)
        return made

    def _encoded(self, answer: Any) -> Any:
        if answer is None:
            return None
        if isinstance(answer, list | tuple | Iterator):
            return map(self._output, answer)
        return self._output(answer)

    def _output(self, answer: Any) -> Any:
        if not self._encodes or type(answer) is bytes:
            return answer
        if type(answer) is not Output:
            value, headers = self._encode(answer, None)
            return Output(value, headers=headers)
        data = answer.value
        if data is None or type(data) is bytes:
            return answer
        value, headers = self._encode(data, answer.topic)
        if headers:
            return replace(answer, value=value, headers=(*answer.headers, *headers))
        return replace(answer, value=value)


class Unchanged:
    """Values of Avro that keep their bytes, where the schema of inputs and outputs is one.

    Writers may cut arrays and maps into blocks of any length; bytes that were decoded and encoded
    again would have one block. The records were decoded before, so their bytes are sound.
    """

    def __init__(self, formats: FormatOptions, lookup: Lookup, encoder: Encoder) -> None:
        self._formats = formats
        self._lookup = lookup
        self._encoder = encoder
        self._heads: dict[str | int, tuple[bytes, bytes] | None] = {}

    def output(self, record: Record) -> Output | None:
        """Return None where schemas differ; raise SchemasUnavailableError and Poison."""
        if record.value is None or self._formats.reader is not None:
            return None
        schema, _rest, content = split(record.value, record.headers)
        if schema not in self._heads:
            self._heads[schema] = self._head(schema)
        head = self._heads[schema]
        if head is None:
            return None
        prefix, mark = head
        if prefix:
            return Output(prefix + content)
        if content is record.value:  # the header of the record says so already
            return Output(content)
        return Output(content, headers=((VALUE_SCHEMA, mark),))

    def _head(self, schema: str | int) -> tuple[bytes, bytes] | None:
        written = self._lookup.get(self._encoder.key(self._formats.topic))
        if not _same(self._lookup.get(key_of(schema)), written):
            return None
        return head_of(written, in_header=self._formats.registry.placement == "header")


def _same(one: Schema, other: Schema) -> bool:
    if (one.kind, one.references) != (other.kind, other.references):
        return False
    return bool(json.loads(one.text) == json.loads(other.text))
