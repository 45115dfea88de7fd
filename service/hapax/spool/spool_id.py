"""``spool.id``: whose folder it is, and what it was published to."""

from __future__ import annotations

import uuid

import msgspec

from hapax.spool.errors import SpoolDamagedError
from hapax.spool.frames import crc32c

SPOOL_ID = "spool.id"
_NEW = f"{SPOOL_ID}.new"


class SpoolId(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says.

    id       UUID, for ever
    app      whose transactional id and marker group it has
    inode    of the folder: a copy has another one. Not the device: its number changes when a
             volume is attached again, and where it is all that differs, the marker decides
    cluster  Kafka's id of the cluster, and the topic that the marker is kept for; None until the
             marker is there: from then on a missing marker is no new spool
    """

    format: int = 1
    id: str
    app: str
    inode: int
    cluster: str | None = None
    topic: str | None = None

    @property
    def uuid(self) -> bytes:
        """The id as segments have it."""
        return uuid.UUID(self.id).bytes

    def encode(self) -> bytes:
        """Return the file's bytes."""
        text = msgspec.json.encode(self)
        return text + b"\n%08x\n" % crc32c(text)

    @classmethod
    def decode(cls, data: bytes) -> SpoolId:
        """Return what the file says; raise SpoolDamagedError when it is not what was written."""
        text, _, rest = data.partition(b"\n")
        if rest != b"%08x\n" % crc32c(text):
            raise SpoolDamagedError(SPOOL_ID, 0, "its checksum does not fit")
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError as error:
            raise SpoolDamagedError(SPOOL_ID, 0, str(error)) from error
