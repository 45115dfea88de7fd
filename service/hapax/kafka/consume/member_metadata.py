"""What the client says of its membership in the group."""

import struct

from hapax.core.errors import BatchAbortedError


def parse_metadata(metadata: bytes) -> tuple[int, str]:
    """Return generation and member id of ``consumer_group_metadata()``.

    Layout ``CGMDv2:``, int32 generation in native order, group NUL, member NUL, instance.
    Raises BatchAbortedError for any other layout: unfenced offsets are worse than none.
    """
    if not metadata.startswith(b"CGMDv2:"):
        raise BatchAbortedError("group metadata of an unknown layout: offsets are not sent")
    (generation,) = struct.unpack_from("=i", metadata, 7)
    _group, member_id, *_rest = metadata[11:].split(b"\0")
    return generation, member_id.decode("utf-8", "replace")
