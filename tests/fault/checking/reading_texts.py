"""Texts to numbers, thousands at once; what cannot be read is ODD."""

import warnings

import numpy as np
from numpy.typing import NDArray

from hapax.core.records import Coordinates

ODD = -1
"""In place of a number that cannot be read."""
CHECK_DIGITS = 8


def sources(texts: list[bytes], topic: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return partition and offset of each; partition ODD where it is no record of the topic."""
    tails = _cut(texts, f"{topic}/".encode())
    found = None if tails is None else numbers([tails], b"/", 2, len(texts))
    if found is None:
        found = np.array([_place(text, topic) for text in texts], np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _place(text: bytes, topic: str) -> tuple[int, int]:
    try:
        named = Coordinates.parse(text.decode())
    except ValueError:
        return ODD, ODD
    return (named.partition, named.offset) if named.topic == topic else (ODD, ODD)


def tailed(texts: list[bytes], head: str) -> NDArray[np.int64]:
    """Return the number behind ``head`` and a hyphen of each text, ODD where there is none."""
    prefix = f"{head}-".encode()
    tails = _cut(texts, prefix)
    found = None if tails is None else numbers([tails], b"\n", 1, len(texts))
    if found is None:
        rows = [_int(text[len(prefix) :]) if text.startswith(prefix) else ODD for text in texts]
        found = np.array(rows, np.int64).reshape(-1, 1)
    return found[:, 0]


def _cut(texts: list[bytes], prefix: bytes) -> bytes | None:
    """Return all texts without their common beginning, one a line; None if one lacks it."""
    joined = b"\n" + b"\n".join(texts)
    if joined.count(b"\n" + prefix) != len(texts):
        return None
    return joined.replace(b"\n" + prefix, b"\n")[1:]


def numbers(
    texts: list[bytes], mark: bytes, columns: int, rows: int | None = None
) -> NDArray[np.int64] | None:
    """Return shape (rows, columns); None when not every text has just so many numbers."""
    rows = len(texts) if rows is None else rows
    joined = b"\n".join(texts)
    if joined.count(mark) != (rows - 1 if mark == b"\n" else rows * (columns - 1)):
        return None
    if mark not in b" \n":
        joined = joined.replace(mark, b" ")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = np.fromstring(joined.decode("ascii"), np.int64, sep=" ")
        except (DeprecationWarning, ValueError, UnicodeDecodeError):
            return None
    return found.reshape(rows, columns) if found.size == rows * columns else None


_NIBBLES = np.full(256, 0xFF, np.uint8)
_NIBBLES[np.frombuffer(b"0123456789abcdef", np.uint8)] = range(16)


def checks(texts: list[bytes]) -> NDArray[np.uint32]:
    """Return what eight hexadecimal digits say; 0 where there are none."""
    joined = b"".join(texts)
    if len(joined) != len(texts) * CHECK_DIGITS:
        joined = b"".join(text.rjust(CHECK_DIGITS, b"?") for text in texts)
    nibbles = _NIBBLES[np.frombuffer(joined, np.uint8).reshape(-1, CHECK_DIGITS)]
    good = (nibbles < 16).all(axis=1)
    found = np.zeros(len(texts), np.uint32)
    for column in range(CHECK_DIGITS):
        found = (found << np.uint32(4)) | (nibbles[:, column] & np.uint8(15))
    return np.where(good, found, np.uint32(0)).astype(np.uint32)


def fields_of(value: bytes) -> tuple[int, int, int]:
    fields = value.split(b" ")
    good = len(fields) == 4
    return (_int(fields[0]), _small(fields[1]), _int(fields[2])) if good else (ODD, ODD, 0)


def pair_of(text: bytes) -> tuple[int, int]:
    part, _slash, parts = text.partition(b"/")
    return _small(part), _small(parts)


def _int(text: bytes) -> int:
    digits = text.removeprefix(b"-")
    return int(text) if digits.isdigit() and len(digits) <= 18 else ODD


def _small(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) <= 2 else ODD
