"""What a Prometheus is asked, and rules that do not let a test wait for minutes."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

ALERTS = Path(__file__).parents[2] / "deploy/monitoring/alerts.yaml"


def query(url: str, expression: str) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = _asked(url, f"query?{urlencode({'query': expression})}")[
        "result"
    ]
    return result


def firing(url: str) -> dict[str, dict[str, Any]]:
    try:
        alerts = _asked(url, "alerts")["alerts"]
    except URLError:
        return {}
    return {one["labels"]["alertname"]: one for one in alerts if one["state"] == "firing"}


def impatient_rules(folder: Path) -> Path:
    """Return a copy of our rules in which alerts wait for 2 s at most."""
    rules = folder / "alerts.yaml"
    text, changed = re.subn(r"(?m)^( +for:) \w+$", r"\1 2s", ALERTS.read_text())
    assert changed
    rules.write_text(text)
    return rules


def _asked(url: str, path: str) -> dict[str, Any]:
    with urlopen(f"{url}/api/v1/{path}", timeout=30) as answer:  # noqa: S310 - our own Prometheus
        said = json.load(answer)
    assert said["status"] == "success", said
    data: dict[str, Any] = said["data"]
    return data
