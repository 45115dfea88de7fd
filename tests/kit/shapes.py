"""Records of every shape, for ``tests.kit.orders:obey``."""

from hapax.core.records import Headers
from tests.kit.orders import told
from tests.kit.topics import Given

NOON_MS = 1_700_000_000_123
LARGE = bytes(range(250)) * 2000  # 500 kB

ODD: Headers = (
    ("twice", b"1"),
    ("", b"no name"),
    ("twice", b"2"),
    ("nothing", None),
    ("empty", b""),
    ("naïve ☃", b"\x00\xff\xfe"),
    ("hapax-id", b"of a pipeline before"),
    ("hapax-source", b"elsewhere/0/1"),
    ("hapax-part", b"1/2"),
)

SHAPES = {
    "three": Given(b"three", headers=(told({"value": "a"}, {"value": "b"}, {"value": "c"}),)),
    "filtered": Given(b"filtered", headers=(told(),)),
    "tombstone": Given(None, b"key"),
    "no key": Given(b"no key", None),
    "empty key": Given(b"empty key", b""),
    "empty value": Given(b"", b"key"),
    "large": Given(LARGE, b"large"),
    "odd headers": Given(b"odd", b"key", headers=ODD),
    "old": Given(b"old", timestamp_ms=NOON_MS),
    "to tombstone": Given(b"gone", b"key", headers=(told({"null": True}),)),
    "new key": Given(b"new key", b"key", headers=(told({"key": "other"}),)),
    "key taken away": Given(b"keyless", b"key", headers=(told({"key": None}),)),
    "new time": Given(b"new time", headers=(told({"timestamp_ms": NOON_MS + 1}),)),
    "poison": Given(b"ill", b"key", headers=(("raise", b""), *ODD), timestamp_ms=NOON_MS),
    "last": Given(b"last"),
}
