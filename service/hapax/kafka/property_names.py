"""The names of the client's properties, for who misspells one."""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress
from ctypes import c_char_p, c_int, c_void_p
from difflib import get_close_matches
from tempfile import TemporaryFile

from confluent_kafka import cimpl


def nearest_property(said: str) -> str:
    """Return which property may be meant when the client says that it does not know one."""
    unknown = re.search(r'^No such configuration property: "(.+)"$', said)
    close = get_close_matches(unknown[1], property_names(), n=1, cutoff=0.75) if unknown else []
    return f": did you mean {close[0]}?" if close else ""


def property_names() -> list[str]:
    """Return the names that librdkafka lists, of this version; none where it cannot be called."""
    with suppress(OSError, AttributeError), TemporaryFile() as file:
        # Its functions are found through the extension that is linked with it.
        client, system = ctypes.CDLL(cimpl.__file__), ctypes.CDLL(None)
        show = client.rd_kafka_conf_properties_show
        system.fdopen.argtypes, system.fdopen.restype = (c_int, c_char_p), c_void_p
        system.fclose.argtypes = show.argtypes = (c_void_p,)
        stream = system.fdopen(os.dup(file.fileno()), b"w")
        if stream is None:
            return []
        show(stream)
        system.fclose(stream)
        file.seek(0)
        return re.findall(r"(?m)^([a-z][\w.]+) +\|", file.read().decode())
    return []
