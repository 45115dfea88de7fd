"""Each order with the last known tier of its customer, who is the key in both topics."""

from hapax import Output, Record, State


def transform(record: Record, state: State[str]) -> Output | None:
    if record.topic == "customers":
        state.set("tier", (record.value or b"").decode())
        return None
    tier = state.get("tier", "unknown")
    return Output(record.value, key=record.key, headers=(("tier", tier.encode()),))
