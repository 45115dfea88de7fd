"""What a checkpoint says of its query, and which logs its offsets belong to.

Spark keeps offsets by name and number only; the logs that they are of are kept next to them, and
compared at each start and before each micro-batch is published. An id that was the same before a
micro-batch was planned and after it was read was the same in between.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol

import msgspec
from pyarrow import fs

from hapax.core.errors import PositionLostError, StopError
from hapax.core.input_logs import InputLogs, require_uncut
from hapax.engines.spark.dataframe.staging import Place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hapax.core.input_logs import Anchors
    from hapax.core.records import Progress, TopicPartition

_FINGERPRINT_CHARS = 32
_LOGS = "hapax.json"


class InputLookup(Protocol):
    """What asks the brokers; see ``hapax.kafka.read.input_logs``."""

    def look(self, topics: Iterable[str]) -> InputLogs:
        """Return what brokers say of these topics now."""

    def cut(self, anchors: Anchors) -> dict[TopicPartition, str]:
        """Return the partitions whose log was cut off below their anchor, and what was said."""


class Checkpoint:
    """The folder of one query."""

    def __init__(self, address: str) -> None:
        self._place = Place(address)

    def query_id(self) -> str | None:
        """Return the id of the query that the checkpoint belongs to; None for a new one."""
        content = _read(self._place, "metadata")
        if content is None:
            return None
        try:
            return msgspec.json.decode(content, type=_Metadata).id
        except msgspec.DecodeError as error:
            raise _damaged(self._place.path("metadata")) from error

    def fingerprint(self, number: int) -> str:
        """Return a fingerprint of what the checkpoint holds for a micro-batch's input.

        Spark writes ``offsets/<number>`` before the micro-batch runs, never again, and plans every
        repetition from it.
        """
        content = _read(self._place, "offsets", str(number))
        if content is None:
            path = self._place.path("offsets", str(number))
            raise StopError(
                f"{path} is missing, although Spark writes it before micro-batch {number} runs:"
                " name the query's checkpoint in full, with its scheme (option checkpointLocation)"
            )
        return hashlib.sha256(content).hexdigest()[:_FINGERPRINT_CHARS]

    def offsets(self, number: int) -> Progress:
        """Return where a micro-batch ends in Kafka's partitions; {} when that is not there.

        One line for each source, and among them those of other kinds. A topic that is read twice
        has the larger one.
        """
        found: Progress = {}
        for line in (_read(self._place, "offsets", str(number)) or b"").splitlines():
            try:
                topics = msgspec.json.decode(line, type=dict[str, dict[int, int]])
            except msgspec.DecodeError:
                continue
            for topic, ends in topics.items():
                for partition, end in ends.items():
                    found[topic, partition] = max(end, found.get((topic, partition), 0))
        return found

    def committed(self) -> bool:
        """Return whether a micro-batch of the query is through."""
        where = fs.FileSelector(self._place.path("commits"), allow_not_found=True)
        names = (info.base_name for info in self._place.files.get_file_info(where))
        return any(name.isdecimal() for name in names)

    def logs(self) -> InputLogs | None:
        """Return which logs it belongs to; None: no version that keeps them has used it."""
        content = _read(self._place, _LOGS)
        if content is None:
            return None
        try:
            return msgspec.json.decode(content, type=InputLogs)
        except msgspec.DecodeError as error:
            raise _damaged(self._place.path(_LOGS)) from error

    def keep(self, logs: InputLogs) -> None:
        """Write which logs it belongs to, whole or not at all, unless they are there."""
        if logs == self.logs():
            return
        path = self._place.path(_LOGS)
        self._place.write(f"{path}.new", msgspec.json.encode(logs))
        self._place.files.move(f"{path}.new", path)
        self._place.sync(path)

    def followed(self, lookup: InputLookup, topics: Iterable[str], last: int) -> InputLogs:
        """Return which logs it belongs to now, which is to be kept once that is certain.

        ``last``: the micro-batch that was published last; -1: none. Raises PositionLostError when
        the input is of another cluster, topic or history by now, BatchAbortedError when brokers do
        not answer.
        """
        now, known = lookup.look(topics), self.logs()
        if known is None:
            return now
        known.require_same(now)
        offsets = self.offsets(last)
        anchors = known.anchors(now, offsets)
        if anchors:
            require_uncut(lookup.cut(anchors), offsets)
        return known.and_now(now)


class _Metadata(msgspec.Struct):
    id: str


def _read(place: Place, *names: str) -> bytes | None:
    try:
        with place.files.open_input_stream(place.path(*names)) as file:
            return bytes(file.read())
    except FileNotFoundError:
        return None


def _damaged(path: str) -> PositionLostError:
    return PositionLostError(
        f"{path} is damaged: restore the checkpoint from a copy, or see docs/dataframes.md, section"
        " Stops"
    )
