"""Where reading is: what the spool keeps with the records, in the same write."""

from __future__ import annotations

import msgspec

from hapax.core.errors import ConfigurationError

VERSION = 1
HEAD_BYTES, TAIL_BYTES = 1024, 64


class FileIdentity(msgspec.Struct, frozen=True, array_like=True):
    """Which file it is, whatever its name: its inode, and what it contains.

    ``head``: its first bytes, up to HEAD_BYTES of those read; ``tail``: the last bytes before the
    place. An inode number is used again for another file, and a file is overwritten in its place;
    the number of a device is another one after a restart of the machine, so it says nothing.
    """

    inode: int
    head: bytes
    tail: bytes


class FilePlace(msgspec.Struct, frozen=True, array_like=True):
    """After which byte and line of which file the next row begins.

    path     as it was named, absolute; empty: a pipe, which nothing can resume
    columns  of a CSV file, from its header
    ended    the file was read to its end by a run that did not follow it
    """

    version: int
    path: str
    form: str
    file: FileIdentity | None = None
    offset: int = 0
    line: int = 0
    columns: tuple[str, ...] = ()
    ended: bool = False

    def encode(self) -> bytes:
        """Return it as bytes."""
        return msgspec.msgpack.encode(self)


def stored_place(position: bytes, path: str, form: str) -> FilePlace | None:
    """Return the place that a spool has for ``path``; None: it has none yet.

    Raises ConfigurationError where it is one of another source, form or program.
    """
    if not position:
        return None
    try:
        found = msgspec.msgpack.decode(position, type=FilePlace)
    except msgspec.MsgspecError as error:
        raise ConfigurationError(
            ["the spool was filled by another program than hapax publish: name another --spool"]
        ) from error
    if found.version != VERSION:
        raise ConfigurationError(
            [
                (
                    f"the spool has a position of format {found.version}, and this version of Hapax"
                    f" reads {VERSION}: run the newer one"
                )
            ]
        )
    if found.path != path:
        raise ConfigurationError(
            [
                (
                    f"the spool belongs to {found.path or 'standard input'}, not to"
                    f" {path or 'standard input'}: each source needs a --spool of its own"
                )
            ]
        )
    if found.form != form and found.offset:
        raise ConfigurationError(
            [f"{path} was read with --format {found.form} so far: name the same --format"]
        )
    return found
