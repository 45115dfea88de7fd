"""The boxes of the status page, apart from the tables of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hapax.telemetry.http.page_values import (
    NONE,
    UNKNOWN,
    bar,
    clock,
    line,
    mark,
    number,
    pairs,
    ranges,
    section,
    size,
    span,
    table,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TOTALS: Final = (
    ("committed", "transactions_committed"),
    ("aborted", "transactions_aborted"),
    ("records in", "records_in"),
    ("records out", "records_out"),
    ("duplicates", "duplicates"),
    ("filtered", "filtered"),
    ("dead letters", "dead_letters"),
)

card = section


def causes(reasons: Sequence[Mapping[str, str]]) -> str:
    """Return why the process is not ready, each with its page."""
    if not reasons:
        return ""
    items = "".join(
        f'<li>{text(cause["reason"])} (<a href="{text(cause["runbook"])}">runbook</a>)</li>'
        for cause in reasons
    )
    return f'<section id="causes" class="reasons"><h2>Not ready</h2><ul>{items}</ul></section>'


def rates(status: Mapping[str, Any]) -> str:
    """Return lag and rates, with what they were in the last minutes."""
    total, history = status.get("total_lag", {}), status.get("rates", ())
    now = history[-1] if history else {}
    known, partitions = total.get("known", 0), total.get("partitions", 0)
    partly = f" of {known:,} of {partitions:,} partitions" if known < partitions else ""
    figures = pairs(
        (
            ("total lag", f"{number(total.get('records'))}{partly}"),
            ("oldest unread", span(total.get("seconds"))),
            ("in", _per_second(now.get("in_per_s"))),
            ("out", _per_second(now.get("out_per_s"))),
        )
    )
    if len(history) < 2:  # noqa: PLR2004 - a line has two ends
        return figures
    charts = "".join(
        _chart(title, [one.get(key) for one in history], span(now["at"] - history[0]["at"]))
        for title, key in (("records in per second", "in_per_s"), ("lag", "lag"))
    )
    return figures + charts


def _chart(title: str, values: list[float | None], since: str) -> str:
    known = [value for value in values if value is not None]
    if len(known) < 2:  # noqa: PLR2004 - as above
        return ""
    label = f"{title}: from {known[0]:,} to {known[-1]:,}, at most {max(known):,}"
    caption = f"{title}, {since}, at most {number(max(known))}"
    return f"<figure><figcaption>{caption}</figcaption>{line(values, label)}</figure>"


def _per_second(rate: float | None) -> str:
    return UNKNOWN if rate is None else f"{rate:,.1f}&nbsp;records/s"


def transactions(totals: Mapping[str, Any], calls: Mapping[str, Any] | None = None) -> str:
    """Return what has been counted since the start, and the calls in flight."""
    shown = [(name, number(totals.get(key))) for name, key in _TOTALS]
    if calls is not None:
        oldest = f", the oldest for {span(calls['oldest_seconds'])}" if calls["in_flight"] else ""
        shown.append(("calls in flight", number(calls["in_flight"]) + oldest))
    return pairs(shown)


def last(settled: Mapping[str, Any] | None) -> str:
    """Return the last transaction, by phase."""
    if settled is None:
        return '<p class="none">none yet</p>'
    phases = settled["phases_ms"]
    longest = max([*phases.values(), 0.001])
    rows = pairs(
        (text(phase), f"{bar(ms, longest)}<span>{ms:,.1f}&nbsp;ms</span>")
        for phase, ms in phases.items()
    )
    attempt = f", attempt {number(settled['attempt'])}" if settled["attempt"] > 1 else ""
    return (
        f"<p>{text(settled['outcome'])} {clock(settled.get('at'))}, {span(settled['s_ago'])}"
        f" ago{attempt}: {number(settled['records'])} in, {number(settled['outputs'])} out,"
        f' {settled["duration_ms"]:,.1f}&nbsp;ms</p><div class="phases">{rows}</div>'
    )


def micro_batch(batch: Mapping[str, Any] | None) -> str:
    """Return the last micro-batch of a DataFrame pipeline; nothing for other engines."""
    if batch is None:
        return ""
    again = ", published before" if batch["repeated"] else ""
    return card(
        "micro-batch",
        "DataFrame",
        pairs(
            (
                ("micro-batch", f"{number(batch['number'])}{again}"),
                ("ended", f"{clock(batch['at'])}, {span(batch['s_ago'])} ago"),
                ("watermark", text(batch["watermark"]) if batch["watermark"] else UNKNOWN),
                ("state", f"{number(batch['state_rows'])} rows, {size(batch['state_bytes'])}"),
                ("dropped as late", number(batch["late"])),
                *(
                    (f"read of {text(topic)}", number(count))
                    for topic, count in batch["inputs"].items()
                ),
                ("input rate", _per_second(batch["in_per_s"])),
                *((text(phase), f"{ms:,.1f}&nbsp;ms") for phase, ms in batch["phases_ms"].items()),
            )
        ),
    )


def process(status: Mapping[str, Any]) -> str:
    """Return what runs here, and since when."""
    build, store = status.get("build", {}), status.get("claim_store", {})
    claims = text(store.get("state", "?"))
    if "away_s" in store:
        claims = mark("bad", f"away for {span(store['away_s'])}")
    totals, at_s, uptime_s = status.get("totals", {}), status.get("at"), status.get("uptime_s")
    there = status.get("outputs_cluster")
    began_s = None if at_s is None or uptime_s is None else at_s - uptime_s
    return pairs(
        (
            ("instance", text(status.get("instance", "?"))),
            ("up for", span(uptime_s)),
            ("started", clock(began_s)),
            ("claim store", claims),
            *([] if there is None else [("outputs go to", _cluster(there))]),
            ("rebalances", number(totals.get("rebalances"))),
            ("producers rebuilt", number(totals.get("producers_rebuilt"))),
            ("version", text(build.get("version", "?"))),
            ("Python", text(build.get("python", "?"))),
            ("librdkafka", text(build.get("librdkafka", "?"))),
        )
    )


def _cluster(there: Mapping[str, Any]) -> str:
    named = text(there["id"]) if there["id"] else "has not answered yet"
    return f"{text(there['servers'])} <small>{named}</small>"


def members(status: Mapping[str, Any]) -> str:
    """Return who is in the consumer group, and which partitions each member holds."""
    group = status.get("members")
    if group is None:
        return section("members", "Group", '<p class="none">not known yet</p>')
    seen = f"<small>{len(group['hold']):,}, as of {clock(group['at'])}</small>"
    rows = [
        [
            text(name),
            number(sum(map(len, topics.values()))),
            "; ".join(f"{text(topic)}: {ranges(held)}" for topic, held in topics.items())
            or "nothing",
        ]
        for name, topics in group["hold"].items()
    ]
    body = table("Group", ("member", "partitions", "holds"), rows) if rows else NONE
    return section("members", f"Group {seen}", body)


def dead_letters(reasons: Sequence[Mapping[str, Any]]) -> str:
    """Return the dead letters of this process by reason, with the command that lists them."""
    if not reasons:
        return section("dead-letters", "Dead letters", NONE)
    rows = [
        [
            text(one["reason"]),
            number(one["count"]),
            f"<code>{text(one['command'])}</code>" if one["command"] else "no topic",
        ]
        for one in reasons
    ]
    names = ("reason", "since the start", "list them")
    return section("dead-letters", "Dead letters", table("Dead letters", names, rows))


def troubles(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the last warnings and errors, the latest first."""
    if not lines:
        return section("troubles", "Last warnings and errors", NONE)
    items = "".join(
        f'<li class="{"warn" if one["level"] == "warning" else "bad"}">'
        f"<b>{text(one['event'])}</b> <small>{text(one['level'])}, {clock(one['at_s'])},"
        f" {span(one['s_ago'])} ago</small> {text(one['text'])}</li>"
        for one in lines
    )
    return section("troubles", "Last warnings and errors", f"<ul>{items}</ul>")


def settings(values: Mapping[str, str]) -> str:
    """Return the settings in force, folded away."""
    if not values:
        return ""
    body = pairs((text(name), text(value) or "<i>empty</i>") for name, value in values.items())
    folded = f'<details id="settings-folded"><summary>{len(values):,} settings</summary>{body}'
    return section("settings", "Settings in force", f"{folded}</details>")
