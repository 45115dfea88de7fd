"""The boxes of Spark: executors, and lanes with their ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hapax.telemetry.http.page_values import (
    NONE,
    UNKNOWN,
    columns,
    folded_table,
    mark,
    number,
    section,
    size,
    span,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_EXECUTORS: Final = (
    "executor", "address", "cores", "tasks running", "done", "failed", "storage memory",
)  # fmt: skip
_LANES: Final = (
    "lane", "position", "range in flight", "offsets", "for", "last range", "records",
    "transactions", "took", "ended",
)  # fmt: skip
_NAMED_MAX: Final = 3
"""Partitions of a lane that are named in a cell; ``/status.json`` has all."""
STYLE: Final = f"""@media (max-width: 44rem) {{
{columns("executors", _EXECUTORS)}{columns("lanes", _LANES)}}}
"""


def executors(spark: Mapping[str, Any] | None) -> str:
    """Return Spark's executors, and where its own pages are; nothing for other engines."""
    if spark is None:
        return ""
    ago_s, found = spark["executors_seen_s_ago"], spark["executors"]
    seen = "not known yet" if ago_s is None else f"{len(found):,}, as of {span(ago_s)} ago"
    body = folded_table("executors", "Executors", _EXECUTORS, [*map(_executor, found)])
    if not found:
        body = NONE
    if spark["waits_for_executors"]:
        body = f"<p>{mark('bad', 'none: tasks wait until an executor is free for this driver')}</p>"
    if why := spark["waits_because"]:
        body += f"<p>{mark('bad', text(why))}</p>"
    if spark["versions"]:
        same = ", ".join(f"{name} {value}" for name, value in spark["versions"].items())
        body += f'<p class="soft">all run what the driver runs: {text(same)}</p>'
    paths = "".join(
        f'<p class="soft">record path on {text(machine)}: {text(path)}</p>'
        for machine, path in sorted(spark["record_paths"].items())
    )
    return section("executors", f"Executors <small>{seen}</small>", body + paths + _ui(spark["ui"]))


def _ui(address: str | None) -> str:
    # Whatever Spark calls its address: only this leads to a page and runs nothing.
    if address is None or not address.startswith(("http://", "https://")):
        return ""
    return f'<p><a href="{text(address)}">Spark\'s own pages</a></p>'


def _executor(one: Mapping[str, Any]) -> list[str]:
    used, most = size(one["memory_bytes"]), size(one["memory_max_bytes"])
    return [
        text(one["name"]),
        text(one["address"]),
        *(number(one[key]) for key in ("cores", "running", "done", "failed")),
        f"{used} of {most}",
    ]


def lanes(spark: Mapping[str, Any] | None) -> str:
    """Return the lanes that have partitions; nothing for other engines and for pipelines."""
    if spark is None or not spark["lanes"]:
        return ""
    found = spark["lanes"]
    busy = sum(lane["range"] is not None for lane in found)
    heading = f"Lanes <small>{len(found):,}, {busy:,} with a range in flight</small>"
    body = folded_table("lanes", "Lanes", _LANES, [*map(_lane, found)])
    return section("lanes", heading, body)


def _lane(lane: Mapping[str, Any]) -> list[str]:
    running, last = lane["range"], lane["last_range"]
    at = [f"{_name(one)} {number(one['position'])}" for one in lane["partitions"]]
    cells = [number(lane["lane"]), _some(at)]
    if running is None:
        cells += ["none", UNKNOWN, UNKNOWN]
    else:
        spans = [
            f"{_name(one)} {number(one['from'])}&nbsp;to&nbsp;{number(one['to'])}"
            for one in running["offsets"]
        ]
        again = f", attempt {number(running['attempt'])}" if running["attempt"] > 1 else ""
        begun = all(one["from"] is not None for one in running["offsets"])
        offsets = sum(one["to"] - one["from"] for one in running["offsets"]) if begun else None
        cells += [_some(spans) + again, number(offsets), span(running["seconds"])]
    if last is None:
        return [*cells, "none yet", *[UNKNOWN] * 4]
    outcome = text(last["outcome"])
    return [
        *cells,
        outcome if last["outcome"] == "done" else mark("warn", outcome),
        number(last["records"]),
        number(last["transactions"]),
        f"{last['round_ms']:,.1f}&nbsp;ms",
        f"{span(last['s_ago'])} ago",
    ]


def _name(one: Mapping[str, Any]) -> str:
    return f"{text(one['topic'])}/{number(one['partition'])}:"


def _some(named: Sequence[str]) -> str:
    rest = len(named) - _NAMED_MAX
    return "; ".join(named[:_NAMED_MAX]) + (f"; {rest:,} more" if rest > 0 else "")
