"""docs/demo.svg: a moving picture of one real run of ``hapax demo``.

python -m bench.demo docs/demo.svg

Watches the processes and reads both outputs (``read_committed``) while the demo runs. What it
counted must be what ``hapax audit`` finds at the end; else nothing is written. The picture keeps
the figures it is drawn from, as JSON in its ``metadata``.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psutil  # type: ignore[import-untyped] # it carries no types
from confluent_kafka import Consumer, TopicPartition

from hapax.commands.demo import DemoScreen
from hapax.core.headers import PART, SOURCE, part_of
from hapax.demo.orders import (
    DEAD_LETTERS,
    ORDINARY_DEAD_LETTERS,
    ORDINARY_PRICED,
    PARTITIONS,
    PRICED,
)
from hapax.demo.story import set_stage, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.demo.stage import Stage
    from hapax.demo.story import DemoVerdict

RUNNING, FROZEN, DEAD = "running", "frozen", "dead"
_SIDES: Final = {
    PRICED: "hapax",
    DEAD_LETTERS: "hapax",
    ORDINARY_PRICED: "ordinary",
    ORDINARY_DEAD_LETTERS: "ordinary",
}
_LOOK_S, _READ_WITHIN_S = 0.02, 60.0
_STEP_S = 0.5


class Watch(threading.Thread):
    """What happens to the processes, and which effects come out a second time.

    since_s  when the demo began to publish
    lanes    process → [from, until, state], in seconds
    counts   side → [seconds, effects too many, those among them after a crash]
    records  side → records read
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(daemon=True)
        self._stage = stage
        self._processes = (*stage.workers, stage.ordinary)
        self.since_s = time.monotonic()
        self.lanes: dict[str, list[list[Any]]] = {one.name: [] for one in self._processes}
        self.counts: dict[str, list[list[float]]] = {"hapax": [], "ordinary": []}
        self.records = dict.fromkeys(self.counts, 0)
        self._events: set[tuple[str, bytes]] = set()
        self._outputs: set[tuple[str, bytes, int]] = set()
        self._pids: dict[str, int] = {}
        self._ended = threading.Event()

    def run(self) -> None:
        with closing(self._consumer()) as consumer:
            while not self._ended.is_set():
                self._look()
                for message in consumer.consume(1000, _LOOK_S):
                    if message.error() is None:
                        self._take(_SIDES[str(message.topic())], dict(message.headers() or ()))

    def stop(self, verdicts: dict[str, DemoVerdict]) -> None:
        """Wait until all is read that the audit has read; compare what was counted."""
        wanted = {side: one.outputs + one.dead_letters for side, one in verdicts.items()}
        until_s = time.monotonic() + _READ_WITHIN_S
        while self.records != wanted and time.monotonic() < until_s:
            time.sleep(_LOOK_S)
        self._ended.set()
        self.join()
        for side, one in verdicts.items():
            _, doubled, crashes = self.counts[side][-1] if self.counts[side] else (0, 0, 0)
            counted = (self.records[side], doubled, crashes)
            audited = (wanted[side], one.doubled, one.doubled_by_crashes)
            if counted != audited:
                sys.exit(f"{side}: counted {counted}, but the audit has {audited}")

    def _consumer(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._stage.sandbox.bootstrap_servers,
                "group.id": "picture",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        single = (DEAD_LETTERS, ORDINARY_DEAD_LETTERS)
        consumer.assign(
            [
                TopicPartition(topic, number, 0)
                for topic in _SIDES
                for number in range(1 if topic in single else PARTITIONS)
            ]
        )
        return consumer

    def _look(self) -> None:
        now_s = round(time.monotonic() - self.since_s, 2)
        for process in self._processes:
            lane = self.lanes[process.name]
            if (state := _state(process)) is None:
                continue
            born = self._pids.setdefault(process.name, process.pid) != process.pid
            self._pids[process.name] = process.pid
            if born and lane[-1][2] != DEAD:  # killed and started again between two looks
                lane.append([lane[-1][1], now_s, DEAD])
            if lane and lane[-1][2] == state:
                lane[-1][1] = now_s
            else:
                lane.append([lane[-1][1] if lane else now_s, now_s, state])

    def _take(self, side: str, headers: dict[str, Any]) -> None:
        """Count as the audit does: after a crash each output, of an event sent again its first."""
        self.records[side] += 1
        number = part_of(headers.get(PART))[0]
        event = (side, headers["message-id"])
        output = (side, headers[SOURCE], number)
        crashed = output in self._outputs
        again = number == 1 and event in self._events
        self._events.add(event)
        self._outputs.add(output)
        if crashed or again:
            counts = self.counts[side]
            _, doubled, crashes = counts[-1] if counts else (0, 0, 0)
            now_s = round(time.monotonic() - self.since_s, 2)
            counts.append([now_s, doubled + 1, crashes + crashed])


def _state(process: Any) -> str | None:
    """Return what a process does; None before its first start."""
    if not process.log.stat().st_size and not process.running:
        return None
    try:
        status = psutil.Process(process.pid).status()
    except psutil.NoSuchProcess:
        return DEAD
    return {psutil.STATUS_STOPPED: FROZEN, psutil.STATUS_ZOMBIE: DEAD}.get(status, RUNNING)


def recorded(seconds: float) -> dict[str, Any]:
    """Run the demo; return the figures of the picture."""
    with closing(DemoScreen()) as screen, set_stage("worker", screen, seed=1, rate=3000) as stage:
        watch = Watch(stage)
        watch.start()
        outcome = tell(stage, seconds)
        watch.stop({"hapax": outcome.hapax, "ordinary": outcome.ordinary})
    if not outcome.exact or outcome.ordinary.exact:
        sys.exit("this run shows nothing: run it again")
    alive = [span[1] for lane in watch.lanes.values() for span in lane if span[2] != DEAD]
    counts = {
        # The last count of each half second.
        side: list({count[0] // _STEP_S: count for count in counts}.values())
        for side, counts in watch.counts.items()
    }
    last = [count[0] for each in counts.values() for count in each[-1:]]
    return {
        "made": datetime.now(UTC).date().isoformat(),
        "seconds": max(alive + last),
        "records": outcome.hapax.records_in,
        "lost": {"hapax": outcome.hapax.lost, "ordinary": outcome.ordinary.lost},
        "lanes": watch.lanes,
        "counts": counts,
    }


# -- The picture ---------------------------------------------------------------------------

_LEFT, _WIDTH, _LANES, _CHART, _BASE = 130, 500, 76, 180, 330
_HELD = 78.0
"""Percent of the time in which the picture moves; then it rests."""
_LONG_S = 1.0
"""A process that is frozen for less was only asked whether this is the moment."""
_LABEL = 60
"""Width of a label."""
_ROW = 44
_TITLES: Final = {"demo-0": ("Hapax worker 0", "hapax"), "demo-1": ("Hapax worker 1", "hapax")}


def joined(spans: list[list[Any]]) -> list[list[Any]]:
    """Return the spans of a process without freezes that were only questions."""
    found: list[list[Any]] = []
    for begin, end, state in spans:
        shown = RUNNING if state == FROZEN and end - begin < _LONG_S else state
        if found and found[-1][2] == shown:
            found[-1][1] = end
        else:
            found.append([begin, end, shown])
    return found


class Scale(NamedTuple):
    """Where a second and a count are: ``ends_s`` at the right, ``top`` above."""

    ends_s: float
    top: int

    def x(self, at_s: float) -> float:
        return round(_LEFT + _WIDTH * at_s / self.ends_s, 1)

    def y(self, count: float) -> float:
        return round(_BASE - (_BASE - _CHART) * count / self.top, 1)


def draw(found: dict[str, Any]) -> str:
    """Return the SVG: lanes of processes, curves of doubled effects, two counters."""
    counts: dict[str, list[list[float]]] = found["counts"]
    highest = max([count[1] for each in counts.values() for count in each], default=1)
    scale = Scale(found["seconds"], next(size for size in _rounded() if size >= highest))
    loop = counts["ordinary"][-1]
    return Template(Path(__file__).with_suffix(".svg").read_text("utf-8")).substitute(
        figures=json.dumps(found),
        made=found["made"],
        records=f"{found['records']:,}",
        marks="\n".join(_axes(scale)),
        lanes="\n".join(_lanes(found["lanes"], scale)),
        doubled=_area(counts["ordinary"], 1, scale),
        crashed=_area(counts["ordinary"], 2, scale),
        crashes=f"{loop[2]:,}",
        repeats=f"{loop[1] - loop[2]:,}",
        hapax_lost=found["lost"]["hapax"],
        loop_lost=found["lost"]["ordinary"],
        **_strip("hapax", counts["hapax"], scale.ends_s),
        **_strip("loop", counts["ordinary"], scale.ends_s),
    )


def _axes(scale: Scale) -> Iterator[str]:
    for count in (scale.top // 2, scale.top):
        at = scale.y(count)
        yield f'<path d="M{_LEFT} {at}h{_WIDTH}" class="grid"/>'
        yield f'<text x="{_LEFT - 10}" y="{at + 4}" class="end small">{count:,}</text>'
    for at_s in range(0, int(scale.ends_s) + 1, 10):
        place = f'x="{scale.x(at_s)}" y="{_BASE + 18}"'
        yield f'<text {place} class="middle small">{at_s} s</text>'


def _area(counts: list[list[float]], which: int, scale: Scale) -> str:
    steps = "".join(f"H{scale.x(count[0])}V{scale.y(count[which])}" for count in counts)
    return f"M{_LEFT} {_BASE}{steps}H{scale.x(scale.ends_s)}V{_BASE}Z"


def _lanes(lanes: dict[str, list[list[Any]]], scale: Scale) -> Iterator[str]:
    kills = []
    for row, (name, spans) in enumerate(lanes.items()):
        top = _LANES + 30 * row
        title, kind = _TITLES.get(name, ("Ordinary loop", "loop"))
        yield f'<text x="{_LEFT - 10}" y="{top + 12}" class="end">{title}</text>'
        for begin, end, state in joined(spans):
            if state == DEAD:
                kills += [(scale.x(begin), top)] if end < scale.ends_s - _LONG_S else []
                continue
            left, width = scale.x(begin), round(scale.x(end) - scale.x(begin), 1)
            look = FROZEN if state == FROZEN else kind
            yield f'<rect x="{left}" y="{top}" width="{width}" height="16" class="{look}"/>'
            if state == FROZEN and width > _LABEL:
                place = f'x="{left + width / 2:.1f}" y="{top + 12}"'
                yield f'<text {place} class="ice">frozen {end - begin:.0f} s</text>'
    for left in {round(left / _LABEL): left for left, _ in kills}.values():
        yield f'<path d="M{left} {_LANES - 4}V{_BASE}" class="strike"/>'
        yield f'<text x="{left}" y="{_LANES - 9}" class="kill">kill -9</text>'
    for left, top in kills:
        yield f'<circle cx="{left}" cy="{top + 8}" r="8" class="bad"/>'
        yield f'<text x="{left}" y="{top + 12}" class="cross">✕</text>'


def _rounded() -> list[int]:
    return [step * 10**power for power in range(1, 7) for step in (1, 2, 3, 4, 6, 8)]


def _strip(name: str, counts: list[list[float]], ends_s: float) -> dict[str, str]:
    """Return the values of a counter, one below the other, and the steps that move them."""
    steps = [(0.0, 0.0), *((count[0], count[1]) for count in counts)]
    texts = [
        f'<text y="{_ROW * number}">{value:,.0f}</text>' for number, (_, value) in enumerate(steps)
    ]
    frames = [
        f"{at_s / ends_s * _HELD:.2f}%{{transform:translateY({-_ROW * number}px)}}"
        for number, (at_s, _) in enumerate(steps)
    ]
    last = f"translateY({-_ROW * (len(steps) - 1)}px)"
    frames.append(f"100%{{transform:{last}}}")
    return {
        f"{name}_texts": "".join(texts),
        f"{name}_frames": "".join(frames),
        f"{name}_last": last,
    }


def figures(picture: str) -> dict[str, Any]:
    """Return what a picture was drawn from."""
    found: dict[str, Any] = json.loads(re.findall(r"<metadata>(.+)</metadata>", picture)[0])
    return found


def main() -> None:
    """Write the picture to the path that is given."""
    Path(sys.argv[1]).write_text(draw(recorded(30.0)), encoding="utf-8")


if __name__ == "__main__":
    main()
