"""Business rules that keep state, and what their outputs must be. Loaded by the worker."""

from hapax import Output, Record, State

COUNT_BYTES = 8


def count(record: Record, state: State[int]) -> Output:
    """The record with how often its key has come, in 8 bytes at its end."""
    number = (state.get("count") or 0) + 1
    state.set("count", number)
    return Output((record.value or b"") + number.to_bytes(COUNT_BYTES, "big"))


def recall(_record: Record, state: State[bytes]) -> Output:
    """What is kept for the key, which is written again."""
    found = state.get("kept", b"")
    state.set("kept", found)
    return Output(found)


def kept(number: int) -> bytes:
    """Return what is kept for a key: 100 B as MessagePack."""
    return b"%098d" % number


def entry(number: int) -> tuple[bytes, bytes]:
    """Return key and value of the changelog for it (docs/state.md)."""
    return b"kept\0key-%d" % number, b"\xc4\x62" + kept(number)
