"""Business rules that keep state, and what their outputs must be. Loaded by the worker."""

from hapax import Output, Record, State

COUNT_BYTES = 8
_NAME = "kept"


def count(record: Record, state: State[int]) -> Output:
    """The record with how often its key has come, in 8 bytes at its end."""
    number = (state.get("count") or 0) + 1
    state.set("count", number)
    return Output((record.value or b"") + number.to_bytes(COUNT_BYTES, "big"))


def recall(_record: Record, state: State[bytes]) -> Output:
    """What is kept for the key, which is written again."""
    found = state.get(_NAME, b"")
    state.set(_NAME, found)
    return Output(found)


def kept(number: int) -> bytes:
    """Return what is kept for a key: 100 B as MessagePack."""
    return b"%098d" % number


def entry(number: int) -> tuple[bytes, bytes]:
    """Return key and value of the changelog for it (docs/state.md)."""
    value = kept(number)
    return b"%s\0key-%d" % (_NAME.encode(), number), b"\xc4" + bytes([len(value)]) + value
