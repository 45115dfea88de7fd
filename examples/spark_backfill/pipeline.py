"""One function for both engines: a click comes in, and leaves with the page without its query."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from hapax import Output, Record


def transform(record: Record) -> Output:
    click = json.loads(record.value or b"")
    click["page"] = urlsplit(click.pop("url")).path
    return Output(json.dumps(click).encode())
