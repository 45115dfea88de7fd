"""The status page: one HTML text from what ``/status.json`` shows. No script, nothing fetched.

Everything that comes from outside (topics, texts of errors) is escaped. What needs attention is
said in words as well as by its colour.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

from hapax.telemetry.http.page_style import STYLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

REFRESH_S: Final = 5
MARGIN_BAD_S, MARGIN_WARN_S = 3_600.0, 6 * 3_600.0
OPEN_WARN_S: Final = 60.0
UNKNOWN: Final = "&ndash;"
_UNITS: Final = (
    (86_400.0, 2 * 86_400.0, "d"), (3_600.0, 2 * 3_600.0, "h"), (60.0, 120.0, "min")
)  # fmt: skip
_LOOKS: Final = {"running": "good", "starting": "warn", "draining": "warn"}
_NONE: Final = '<p class="none">none</p>'
_LINKS: Final = ("/status.json", "/metrics", "/livez", "/readyz", "/startupz")
_OURS: Final = (
    "partition", "low", "committed", "position", "last stable", "end", "lag", "lag, time",
    "deleted in", "open for", "seen",
)  # fmt: skip
_FIGURES: Final = (
    "log_start", "committed", "position", "last_stable", "high_watermark", "lag",
)  # fmt: skip
_WRITTEN: Final = ("partition", "low", "last stable", "end", "undecided", "open for", "seen")


def page(status: Mapping[str, Any]) -> str:
    """Return the whole page; what ``status`` does not hold is shown as unknown."""
    app = _text(status.get("app", "Hapax"))
    state = str(status.get("state", "unknown"))
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="refresh" content="{REFRESH_S}">
<title>{app}: {_text(state)}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{app}</h1>
<p class="state {_LOOKS.get(state, "bad")}">{_text(state)}</p>
<p class="who">{_who(status)}</p>
</header>
<main>
{_causes(status.get("causes", ()))}
<div class="cards">
{_card("Transactions", _transactions(status))}
{_card("Last transaction", _last(status.get("last_transaction")))}
{_card("This process", _process(status))}
</div>
{_partitions("Input partitions", _OURS, map(_ours, status.get("partitions", ())), status)}
{_partitions("Written to", _WRITTEN, map(_written, status.get("outputs", ())), status)}
{_troubles(status.get("troubles", ()))}
</main>
<footer>{_links()}</footer>
</body>
</html>
"""


def _who(status: Mapping[str, Any]) -> str:
    names = ("engine", "guarantee", "record_path", "transactional_id")
    facts = (status.get(name) for name in names)
    return " · ".join(f"<span>{_text(fact)}</span>" for fact in facts if fact)


def _causes(causes: Sequence[Mapping[str, str]]) -> str:
    if not causes:
        return ""
    items = "".join(
        f'<li>{_text(cause["reason"])} (<a href="{_text(cause["runbook"])}">runbook</a>)</li>'
        for cause in causes
    )
    return f'<section class="reasons"><h2>Not ready</h2><ul>{items}</ul></section>'


def _card(title: str, body: str) -> str:
    return f"<section><h2>{title}</h2>{body}</section>"


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in pairs)
    return f"<dl>{rows}</dl>"


def _transactions(status: Mapping[str, Any]) -> str:
    totals = status.get("totals", {})
    names = (
        ("committed", "transactions_committed"),
        ("aborted", "transactions_aborted"),
        ("records in", "records_in"),
        ("records out", "records_out"),
        ("duplicates", "duplicates"),
        ("filtered", "filtered"),
        ("dead letters", "dead_letters"),
    )
    pairs = [(name, _number(totals.get(key))) for name, key in names]
    if (calls := status.get("calls")) is not None:
        oldest = f", the oldest for {_span(calls['oldest_seconds'])}" if calls["in_flight"] else ""
        pairs.append(("calls in flight", _number(calls["in_flight"]) + oldest))
    return _pairs(pairs)


def _last(last: Mapping[str, Any] | None) -> str:
    if last is None:
        return '<p class="none">none yet</p>'
    phases = last["phases_ms"]
    longest = max([*phases.values(), 0.001])
    rows = "".join(
        f'<div><dt>{_text(phase)}</dt><dd><span class="bar" style="width:{_share(ms, longest)}%">'
        f"</span><span>{ms:,.1f}&nbsp;ms</span></dd></div>"
        for phase, ms in phases.items()
    )
    attempt = f", attempt {_number(last['attempt'])}" if last["attempt"] > 1 else ""
    return (
        f"<p>{_text(last['outcome'])} {_span(last['s_ago'])} ago{attempt}:"
        f" {_number(last['records'])} in, {_number(last['outputs'])} out,"
        f" {last['duration_ms']:,.1f}&nbsp;ms</p>"
        f'<dl class="phases">{rows}</dl>'
    )


def _process(status: Mapping[str, Any]) -> str:
    build, store = status.get("build", {}), status.get("claim_store", {})
    claims = _text(store.get("state", "?"))
    if "away_s" in store:
        claims = _mark("bad", f"away for {_span(store['away_s'])}")
    totals = status.get("totals", {})
    return _pairs(
        (
            ("instance", _text(status.get("instance", "?"))),
            ("up for", _span(status.get("uptime_s"))),
            ("claim store", claims),
            ("rebalances", _number(totals.get("rebalances"))),
            ("producers rebuilt", _number(totals.get("producers_rebuilt"))),
            ("version", _text(build.get("version", "?"))),
            ("Python", _text(build.get("python", "?"))),
            ("librdkafka", _text(build.get("librdkafka", "?"))),
        )
    )


def _ours(row: Mapping[str, Any]) -> list[str]:
    return [
        _name(row),
        *(_number(row.get(key)) for key in _FIGURES),
        _span(row.get("lag_seconds")),
        _margin(row.get("retention_margin_seconds")),
        _open(row.get("open_transaction_seconds")),
        _seen(row),
    ]


def _written(row: Mapping[str, Any]) -> list[str]:
    keys = ("log_start", "last_stable", "high_watermark", "last_stable_offset_lag")
    figures = (_number(row.get(key)) for key in keys)
    return [_name(row), *figures, _open(row.get("open_transaction_seconds")), _seen(row)]


def _seen(row: Mapping[str, Any]) -> str:
    """Say how old the figures of a row are: those of a broker that is away grow old alone."""
    ago_s = row.get("seen_s_ago")
    return UNKNOWN if ago_s is None else f"{_span(ago_s)} ago"


def _name(row: Mapping[str, Any]) -> str:
    return f"{_text(row['topic'])}/{_number(row['partition'])}"


def _partitions(
    title: str, names: Sequence[str], rows: Iterable[Sequence[str]], status: Mapping[str, Any]
) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    body = "".join(_line(names, row) for row in rows)
    if not body:
        return _card(title, _NONE)
    ago_s = status.get("lag_updated_s_ago")
    asked = "no complete query yet" if ago_s is None else f"last complete query {_span(ago_s)} ago"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return _card(f"{title} <small>{asked}</small>", f'<div class="wide" tabindex="0">{table}</div>')


def _line(names: Sequence[str], cells: Sequence[str]) -> str:
    first, *rest = cells
    data = "".join(
        f'<td data-name="{name}">{cell}</td>' for name, cell in zip(names[1:], rest, strict=True)
    )
    return f'<tr><th scope="row">{first}</th>{data}</tr>'


def _troubles(troubles: Sequence[Mapping[str, Any]]) -> str:
    if not troubles:
        return _card("Last warnings and errors", _NONE)
    items = "".join(
        f'<li class="{"warn" if trouble["level"] == "warning" else "bad"}">'
        f"<b>{_text(trouble['event'])}</b> <small>{_text(trouble['level'])},"
        f" {_span(trouble['s_ago'])} ago</small> {_text(trouble['text'])}</li>"
        for trouble in troubles
    )
    return _card("Last warnings and errors", f"<ul>{items}</ul>")


def _links() -> str:
    return " ".join(f'<a href="{path}">{path[1:]}</a>' for path in _LINKS)


# -- values -------------------------------------------------------------------------------


def _text(value: object) -> str:
    return escape(str(value))


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def _span(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    for unit_s, from_s, name in _UNITS:
        if seconds >= from_s:
            return f"{seconds / unit_s:.1f}&nbsp;{name}"
    return f"{seconds:.1f}&nbsp;s" if seconds >= 0.1 else "0&nbsp;s"  # noqa: PLR2004 - what is shown


def _margin(margin_s: float | str | None) -> str:
    if margin_s is None or isinstance(margin_s, str):
        return UNKNOWN if margin_s is None else _text(margin_s)
    if margin_s <= 0:
        return _mark("bad", "being deleted")
    if margin_s < MARGIN_BAD_S:
        return _mark("bad", _span(margin_s))
    return _mark("warn", _span(margin_s)) if margin_s < MARGIN_WARN_S else _span(margin_s)


def _open(open_s: float | None) -> str:
    text = _span(open_s)
    return text if open_s is None or open_s < OPEN_WARN_S else _mark("warn", text)


def _mark(look: str, text: str) -> str:
    return f'<strong class="{look}"><span aria-hidden="true">⚠ </span>{text}</strong>'


def _share(part: float, whole: float) -> int:
    return max(1, round(60 * part / whole))
