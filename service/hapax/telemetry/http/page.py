"""The status page: one HTML text from what ``/status.json`` shows.

It is complete as it is sent. Its one script fetches the page again and puts what has changed into
place: one place writes HTML, and the page works without the script. Everything that comes from
outside (topics, texts of errors) is escaped, and nothing is fetched from elsewhere: the policy
names style and script by their hashes. What needs attention is said in words as well as by its
colour.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any, Final

from hapax.telemetry.http.page_boxes import (
    card,
    causes,
    dead_letters,
    last,
    members,
    micro_batch,
    process,
    rates,
    settings,
    transactions,
    troubles,
)
from hapax.telemetry.http.page_partitions import STYLE as COLUMNS
from hapax.telemetry.http.page_partitions import inputs, outputs
from hapax.telemetry.http.page_script import SCRIPT
from hapax.telemetry.http.page_spark import STYLE as SPARK_COLUMNS
from hapax.telemetry.http.page_spark import executors, lanes
from hapax.telemetry.http.page_style import STYLE
from hapax.telemetry.http.page_values import clock, text

if TYPE_CHECKING:
    from collections.abc import Mapping

REFRESH_S: Final = 5
_LOOKS: Final = {"running": "good", "starting": "warn", "draining": "warn"}
_LINKS: Final = ("/status.json", "/metrics", "/livez", "/readyz", "/startupz")
_STYLE: Final = STYLE + COLUMNS + SPARK_COLUMNS


def _hash(content: str) -> str:
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"


_POLICY: Final = (
    f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(SCRIPT)}; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Security-Policy", _POLICY),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
]
"""Nothing runs but this script, whatever a text on the page may hold; no page frames this one."""


def page(status: Mapping[str, Any]) -> str:
    """Return the whole page; what ``status`` does not hold is shown as unknown."""
    app = text(status.get("app", "Hapax"))
    state = str(status.get("state", "unknown"))
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<noscript><meta http-equiv="refresh" content="{REFRESH_S}"></noscript>
<title>{app}: {text(state)}</title>
<style>{_STYLE}</style>
</head>
<body>
<header>
<div id="who">
<h1>{app}</h1>
<p class="state {_LOOKS.get(state, "bad")}">{text(state)}</p>
<p class="soft">{_who(status)}</p>
</div>
<div id="controls" hidden>
<button type="button" id="pause">Pause updates</button>
<label for="filter">Filter partitions</label>
<input id="filter" type="search" placeholder="topic/partition" autocomplete="off">
<p id="live" role="status"></p>
</div>
</header>
<main>
{causes(status.get("causes", ()))}
<div class="cards" id="cards">
{card("lag", "Lag and rates", rates(status))}
{card("transactions", "Transactions", transactions(status.get("totals", {}), status.get("calls")))}
{card("last", "Last transaction", last(status.get("last_transaction")))}
{micro_batch(status.get("micro_batch"))}
{card("process", "This process", process(status))}
</div>
{executors(status.get("spark"))}
{lanes(status.get("spark"))}
{inputs(status)}
{outputs(status)}
{members(status)}
{dead_letters(status.get("dead_letters", ()))}
{troubles(status.get("troubles", ()))}
{settings(status.get("settings", {}))}
</main>
<footer>{_links()}<span class="soft">as of {clock(status.get("at"))}</span></footer>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _who(status: Mapping[str, Any]) -> str:
    names = ("engine", "guarantee", "record_path", "transactional_id")
    facts = (status.get(name) for name in names)
    return " · ".join(f"<span>{text(fact)}</span>" for fact in facts if fact)


def _links() -> str:
    return " ".join(f'<a href="{path}">{path[1:]}</a>' for path in _LINKS)
