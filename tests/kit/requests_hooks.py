"""The interceptors of ``fast/src/requests.c``, called by hand as librdkafka calls them.

The file is compiled by itself, with the sanitizers for addresses and undefined behaviour where a
test asks for them, so that it is tested also where the extension is not built.
"""

import ctypes
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, Self

from tests.kit.commands import output_of

SOURCES = Path(__file__).parents[2] / "fast" / "src"
APIS = {
    "Produce": 0,
    "Fetch": 1,
    "Metadata": 3,
    "InitProducerId": 22,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "TxnOffsetCommit": 28,
}
TIMED_OUT, TIMED_OUT_QUEUE, TRANSPORT = -185, -166, -195
PURGE_INFLIGHT, PURGE_QUEUE, RETRY, BAD_MSG = -151, -152, -153, -199
_BYTES = 4096
"""More than the structure takes."""


def compiler() -> str | None:
    """Return the C compiler that ``make setup`` would use; None: there is none."""
    return shutil.which(os.environ.get("CC", "cc"))


def compiled(folder: Path, source: Path, *options: str) -> Path:
    """Compile C files of the record of requests; fail with what the compiler writes."""
    command = compiler()
    assert command is not None
    made = folder / source.with_suffix(".so" if "-shared" in options else "").name
    base = [command, "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES}"]
    files = [str(each) for each in {source, SOURCES / "requests.c"}]
    output_of([*base, *options, *files, "-o", str(made), "-lpthread"])
    return made


class Doubt(NamedTuple):
    """What is reported: which API, what became of the request, to whom it was sent."""

    api: str
    loss: str
    broker: str


class _Doubt(ctypes.Structure):
    _fields_ = (("api", ctypes.c_int), ("loss", ctypes.c_int), ("broker", ctypes.c_char * 64))


class Requests:
    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        library.requests_api_name.restype = ctypes.c_char_p
        library.requests_loss_name.restype = ctypes.c_char_p
        library.requests_downs.restype = ctypes.c_uint64
        self.record = ctypes.create_string_buffer(_BYTES)
        library.requests_init(self.record)

    def doubts(self) -> list[Doubt]:
        found, doubt = [], _Doubt()
        while self.library.requests_next(self.record, ctypes.byref(doubt)):
            api = self.library.requests_api_name(doubt.api).decode()
            loss = self.library.requests_loss_name(doubt.loss).decode()
            found.append(Doubt(api, loss, doubt.broker.decode()))
        return found

    def in_flight(self) -> int:
        return int(self.library.requests_in_flight(self.record, ctypes.byref(ctypes.c_int())))

    def downs(self) -> int:
        return int(self.library.requests_downs(self.record))


class BrokerThread:
    """A thread as librdkafka has one for each connection; calls are made one after another."""

    def __init__(self, requests: Requests, broker: str = "TxnCoordinator") -> None:
        self._requests = requests
        self._library = requests.library
        self._broker = broker.encode()
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._done: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=broker)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.put(None)
        self._thread.join()

    def sent(self, api: str) -> None:
        record, size = self._requests.record, ctypes.c_size_t(100)
        self._do(
            lambda: self._library.requests_sent(
                None, 7, self._broker, 1, APIS[api], 1, 5, size, record
            )
        )

    def ended(self, api: str, error: int = 0) -> None:
        """Report a request as answered, or as ended by an error of the client's own."""
        record, none = self._requests.record, ctypes.c_size_t(0)
        self._do(
            lambda: self._library.requests_received(
                None, -1, b"", 1, APIS[api], 1, 0, none, ctypes.c_int64(9), error, record
            )
        )

    def became(self, state: str) -> None:
        record = self._requests.record
        self._do(
            lambda: self._library.requests_state(
                None, 1, b"plaintext", b"host", 9092, state.encode(), record
            )
        )

    def _do(self, call: Callable[[], object]) -> None:
        self._calls.put(call)
        self._done.get()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            self._done.put(None)
