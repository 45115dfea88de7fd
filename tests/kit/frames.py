"""As much of the Kafka protocol as a fault proxy must know: heads of requests, errors of answers.

A frame is what follows the four bytes of its length. Formats are those of kafka-python.
"""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from kafka.protocol import metadata, producer
from kafka.protocol.api_key import ApiKey

APIS = {key.value: key.name for key in ApiKey}
_ANSWERS = {
    "Metadata": metadata.MetadataResponse,
    "Produce": producer.ProduceResponse,
    "InitProducerId": producer.InitProducerIdResponse,
    "AddPartitionsToTxn": producer.AddPartitionsToTxnResponse,
    "AddOffsetsToTxn": producer.AddOffsetsToTxnResponse,
    "EndTxn": producer.EndTxnResponse,
    "TxnOffsetCommit": producer.TxnOffsetCommitResponse,
}
"""Those whose errors are read and changed."""


class Request(NamedTuple):
    """Head of a request frame. ``commits``: what an EndTxn asks for, None for all else."""

    api: str
    version: int
    correlation_id: int
    client_id: str
    commits: bool | None = None


def read_request(frame: bytes) -> Request:
    """Read the head of a request; an API that is not known is named by its number."""
    key, version, correlation_id, length = struct.unpack_from(">hhih", frame)
    client_id = frame[10 : 10 + max(length, 0)].decode("utf-8", "replace")
    request = Request(APIS.get(key, str(key)), version, correlation_id, client_id)
    if request.api != "EndTxn":
        return request
    asked = producer.EndTxnRequest.decode(frame, version=version, header=True)
    return request._replace(commits=bool(asked.committed))


def with_error(request: Request, answer: bytes, code: int) -> bytes:
    """Return the answer with every error in it replaced; to Metadata, without any broker.

    That is what an only broker says that stops. Raises KeyError for an API that is not in _ANSWERS.
    """
    told = _read(request, answer)
    if request.api == "Metadata":
        told.brokers = []
    else:
        for part, name in _errors(told):
            setattr(part, name, code)
    return bytes(told.encode(header=True))


def correlation_id(answer: bytes) -> int:
    (number,) = struct.unpack_from(">i", answer)
    return int(number)


def error_code(request: Request, answer: bytes) -> int:
    """Return the first error in an answer, 0 when it has none; KeyError as ``with_error``."""
    codes = (getattr(part, name) for part, name in _errors(_read(request, answer)))
    return next((int(code) for code in codes if code), 0)


def _read(request: Request, answer: bytes) -> Any:
    return _ANSWERS[request.api].decode(answer, version=request.version, header=True)


def _errors(told: Any) -> Iterator[tuple[Any, str]]:
    """Yield the parts of an answer that have an error, itself included, and what it is called."""
    for name in told.fields:
        value = getattr(told, name)
        if name.endswith("error_code"):
            yield told, name
        for part in value if isinstance(value, list) else ():
            if hasattr(part, "fields"):
                yield from _errors(part)
