"""A pipeline with state under kills, and the same computed at once from what went in.

`python -m tests.kit.pipeline_chaos RECORDS KILLS [parallel]` is the long form.
"""

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hapax.sandbox import Sandbox, SandboxTopic
from tests.kit import topics
from tests.kit.pipeline_process import WIDE, environment, pipeline_process
from tests.kit.spark_process import Part, SparkProcess
from tests.kit.topics import Given
from tests.kit.waiting import await_

Harm = Part | Callable[[], object]

BEGAN_MS = (int(time.time()) - 6 * 3600) * 1000
"""Not longer ago than the topic's retention, and early enough that nothing lies ahead of time."""
APART_MS = 10
AGAIN_AFTER = 50
KEYS = 5
PARTITIONS = 4
LATER_MS = 3_600_000
LEAVES_S = 15.0
NO_PROPERTIES: dict[str, str] = {}


class Outcome(NamedTuple):
    """What came out, against what should have."""

    expected: Counter[tuple[bytes, bytes]]
    found: Counter[tuple[bytes, bytes]]
    batches: int
    repeated: int
    kills: int
    seconds: float

    @property
    def lost(self) -> list[tuple[bytes, bytes]]:
        return list((self.expected - self.found).elements())

    @property
    def doubled(self) -> list[tuple[bytes, bytes]]:
        return list((self.found - self.expected).elements())


def feed(servers: str, topic: str, records: int) -> Counter[tuple[bytes, bytes]]:
    """Write events, each twice, then what closes all windows; return what is to come out."""
    given: list[Given] = []
    expected: Counter[tuple[bytes, int]] = Counter()
    for number in range(records + AGAIN_AFTER):
        if number < records:
            expected[(key(number), moment_ms(number) // 1000 * 1000)] += 1
            given.append(event(number, number % PARTITIONS))
        if number >= AGAIN_AFTER:
            given.append(event(number - AGAIN_AFTER, (number + 1) % PARTITIONS))
    end_ms = moment_ms(records) + LATER_MS
    given += [
        Given(b"end-%d" % partition, b"end", (), partition, end_ms)
        for partition in range(PARTITIONS)
    ]
    topics.produce(servers, topic, *given)
    return Counter({(k, b"%d %d" % (ms, count)): 1 for (k, ms), count in expected.items()})


def key(number: int) -> bytes:
    return b"key-%d" % (number * 7 % KEYS)


def moment_ms(number: int) -> int:
    return BEGAN_MS + number * APART_MS


def event(number: int, partition: int) -> Given:
    return Given(b"event-%d" % number, key(number), (), partition, moment_ms(number))


def run(
    sandbox: Sandbox,
    app: str,
    folder: Path,
    *,
    records: int,
    strikes: Sequence[Harm],
    rng: random.Random,
    batch_max: int,
    in_parts: bool = False,
    properties: Mapping[str, str] = NO_PROPERTIES,
    master: str = "",
) -> Outcome:
    """Run the pipeline to the end through these strikes, each after some more has come out.

    A strike that is a function harms what is around the driver, which must go on.
    """
    given, out, servers = f"{app}-in", f"{app}-out", sandbox.bootstrap_servers
    sandbox.create_topics(SandboxTopic(given, PARTITIONS), SandboxTopic(out, 2))
    expected = feed(servers, given, records)
    values = environment(
        sandbox,
        app,
        given,
        out,
        folder / "checkpoint",
        HAPAX_SPARK__DATAFRAME=f"tests.kit.pipeline_process:counted{'_wide' if in_parts else ''}",
        HAPAX_SPARK__PUBLISH="parallel" if in_parts else "together",
        # With another attempt at a task that dies: the lanes must bear that as well.
        HAPAX_SPARK__MASTER=master or ("local[2,4]" if in_parts else "local[2]"),
        HAPAX_SPARK__BATCH_RECORDS_MAX=str(batch_max),
        HAPAX_SPARK__CHECKPOINT=(folder / "checkpoint").as_uri(),
        HAPAX_SPARK__PROPERTIES=json.dumps({"spark.sql.shuffle.partitions": "2", **properties}),
    )
    driver = pipeline_process(folder, values)
    began_s = time.monotonic()
    try:
        for strike in strikes:
            _start(driver)
            _await_more(driver, servers, out)
            time.sleep(rng.uniform(0.0, 1.0))  # any moment of a micro-batch
            _strike(driver, strike, retried=in_parts)
        _start(driver)
        wanted = len(expected)
        await_(lambda: _rows(servers, out) >= wanted, 600, lambda: driver.text()[-2000:])
        assert driver.terminate() == 0
    finally:
        driver.close()
    settled = driver.lines("micro_batch_completed")
    found = Counter(
        ((one.key or b""), (one.value or b"").removesuffix(b" " + b"x" * WIDE))
        for one in topics.read_back(servers, out)
    )
    return Outcome(
        expected,
        found,
        batches=len({line["number"] for line in settled}),
        repeated=sum(bool(line["repeated"]) for line in settled),
        kills=len(strikes),
        seconds=time.monotonic() - began_s,
    )


def _start(driver: SparkProcess) -> None:
    if not driver.running:
        driver.start()


def _strike(driver: SparkProcess, part: Harm, *, retried: bool) -> None:
    """Kill a part; what is left of the driver leaves by itself, or did not need it.

    ``retried``: Spark makes another attempt at the tasks of a Python process that died.
    """
    if callable(part):
        part()
        return
    if part == "all" or not driver.strike(signal.SIGKILL, part):
        driver.kill()
        return
    if retried and part in {"worker", "pool"}:
        return
    try:
        assert driver.process.wait(LEAVES_S), "it went on without a part of itself"
    except subprocess.TimeoutExpired:
        assert part in {"worker", "pool"}, f"it goes on without its {part}"
    else:
        driver.await_gone()


def _await_more(driver: SparkProcess, servers: str, out: str) -> None:
    before = len(driver.lines("micro_batch_completed"))
    await_(
        lambda: len(driver.lines("micro_batch_completed")) > before or not driver.running,
        180,
        lambda: driver.text()[-2000:],
    )


def _rows(servers: str, out: str) -> int:
    """Count what is visible, control records aside."""
    return len(topics.read_back(servers, out)) if sum(topics.ends(servers, out).values()) else 0


def main() -> None:
    records, kills = int(sys.argv[1]), int(sys.argv[2])
    rng = random.Random(records)
    in_parts = "parallel" in sys.argv[3:]
    parts: list[Part] = ["all", "jvm", "worker", "pool"]
    with Sandbox(nodes=1) as sandbox, tempfile.TemporaryDirectory() as folder:
        outcome = run(
            sandbox,
            "chaos",
            Path(folder),
            records=records,
            strikes=[rng.choice(parts) for _ in range(kills)],
            rng=rng,
            batch_max=max(1000, records // 40),
            in_parts=in_parts,
        )
    print(  # noqa: T201 - for a person
        f"{records} events twice, {outcome.kills} kills, {outcome.batches} micro-batches,"
        f" {outcome.repeated} repeated, {len(outcome.expected)} rows expected,"
        f" {len(outcome.lost)} lost, {len(outcome.doubled)} doubled, {outcome.seconds:.0f} s"
    )
    sys.exit(bool(outcome.lost or outcome.doubled))


if __name__ == "__main__":
    main()
