"""``hapax audit``: whether the promise was kept, record by record, from the topics alone."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from hapax.commands import screen
from hapax.core.errors import ConfigurationError, ExitCode
from hapax.operations.audit.result import ANOMALIES, Compare, EngineName

if TYPE_CHECKING:
    from rich.text import Text

    from hapax.operations.audit.result import Audit, Class, InputFindings, StateFindings

PARTITIONS_SHOWN = 40
_ANOMALIES = 1
_ACCOUNTS = {
    "records": "records",
    "with outputs": "with_outputs",
    "filtered": "filtered",
    "duplicates": "duplicates",
    "dead letters": "dead_letters",
}
_NOT_ALWAYS = {"without effect": "unexplained", "waiting for a later try": "waiting"}


def audit(
    since: screen.Since = None,
    compare: Annotated[
        Compare,
        typer.Option(help="Which parts of the outputs must match what the transform returns now."),
    ] = Compare.VALUES,
    no_transform: Annotated[
        bool, typer.Option("--no-transform", help="Do not call the transform.")
    ] = False,
    state: Annotated[
        bool, typer.Option("--state", help="Judge the state that the transform keeps, too.")
    ] = False,
    output_topic: screen.OutputTopics = None,
    engine: Annotated[
        EngineName, typer.Option(help="What reads and judges: this process, or Spark.")
    ] = "local",
    master: screen.SparkMaster = None,
    examples: Annotated[
        int, typer.Option(min=0, max=1000, help="Examples of each class of anomalies.")
    ] = 5,
    as_json: screen.JsonFlag = False,
) -> None:
    """Read input, outputs and dead letters, and report whether each effect exists exactly once.

    Settings are those of hapax run, from the environment. Every input record
    below the group's committed offsets must have its outputs, or one dead
    letter, or be filtered, or be a duplicate, and nothing else may exist.
    The transform runs again to know what is due. Reads only.
    With --state it runs in order, from the first record on, and what it keeps
    must be what its changelog has at the committed offsets.
    Exit code 1: something is missing, doubled, out of order, torn or wrong.

    Examples:
      hapax audit
      hapax audit --since 24h --examples 20
      hapax audit --compare counts --output-topic orders-eu
      hapax audit --no-transform --json > audit.json
      hapax audit --state
      hapax audit --engine spark --master spark://spark:7077
    """
    with screen.refusals(
        as_json=as_json, prefix="hapax audit: ", otherwise=ExitCode.PREFLIGHT
    ) as line:
        if master is not None and engine != "spark":
            raise ConfigurationError("--master is an option of --engine spark: name both")
        given = {} if master is None else {"HAPAX_SPARK__MASTER": master}
        settings = screen.one_cluster_settings(given)
        since_ms = None if since is None else screen.point_ms("--since", since)
        from hapax.operations.audit.topics import AuditOptions, audit as run

        options = AuditOptions(
            compare=compare,
            transform=not no_transform,
            state=state,
            output_topics=tuple(output_topic or ()),
            since_ms=since_ms,
            examples_max=examples,
        )
        found = run(settings, options, line.show, engine)
    if as_json:
        screen.print_json(figures(found))
    else:
        _show(found)
    raise typer.Exit(0 if found.clean else _ANOMALIES)


def figures(audit: Audit) -> dict[str, object]:
    return {"clean": audit.clean, "anomalies": audit.anomalies, **msgspec.to_builtins(audit)}


def _show(audit: Audit) -> None:
    shown = audit.inputs
    if len(shown) > PARTITIONS_SHOWN:
        shown = [one for one in shown if _sum(one.counts)][:PARTITIONS_SHOWN]
    more = {title: name for title, name in _NOT_ALWAYS.items() if audit.totals.get(name)}
    names = _ACCOUNTS | more
    columns: screen.Columns[InputFindings] = {
        **_PLACE,
        "from": lambda one: one.bounds.start,
        "to": lambda one: one.bounds.until,
        "lag": _lag,
        **{title: partial(_count, name) for title, name in names.items()},
        "anomalies": lambda one: screen.judged(_sum(one.counts)),
    }
    totals: dict[str, screen.Cell] = {
        title: audit.totals.get(name, 0) for title, name in names.items()
    }
    totals["anomalies"] = screen.judged(_sum(audit.totals))
    screen.show(shown, columns, total=_TOTAL | totals)
    if classes := _classes(audit):
        columns = {one.title: partial(_judged, one.name) for one in classes}
        totals = {one.title: screen.judged(audit.totals[one.name]) for one in classes}
        screen.show(shown, _PLACE | columns, total=_TOTAL | totals)
    for sentence in sentences(audit):
        screen.say(sentence)


def sentences(audit: Audit) -> list[str]:
    records, unknown = audit.totals["records"], audit.totals["unexplained"]
    classes = _classes(audit)
    if classes:
        found = ", ".join(f"{audit.anomalies[one.name]:,} {one.title}" for one in classes)
        first = f"BROKEN: {found}; {records:,} records judged."
    elif not records:
        first = "Nothing to judge: no record that exists is below a committed offset."
    elif unknown:
        # Without the transform it is not known whether they should have had an effect.
        explain = "only the transform can explain"
        explain += "" if audit.state else ": audit without --no-transform"
        first = (
            f"Not refuted: {records:,} records judged; {unknown:,} of them have no effect, which"
            f" {explain}."
        )
    else:
        first = f"Kept: {records:,} records judged, each with its effect once, in order."
    words = [first]
    for one in classes:
        words.append(f"{one.title}: {one.meaning}")
        words += [f"  {example}" for example in audit.examples.get(one.name, [])]
    words += [] if audit.state is None else _of_state(audit.state)
    words += [f"Remark: {remark}." for remark in audit.remarks]
    return [*words, f"{audit.duration_s:.0f} s; compared: {audit.compare}."]


def _of_state(found: StateFindings) -> list[str]:
    verdict = f"BROKEN: {found.wrong:,} are not" if found.wrong else "all are"
    words = [f"State: {found.entries:,} entries judged; {verdict} what the input asks for."]
    words += [f"  {example}, which is due and which is kept" for example in found.examples]
    if found.unjudged:
        words.append(f"  {found.unjudged:,} were changed by later records, and are not judged.")
    return [*words, *(f"Remark: {remark}." for remark in found.remarks)]


_PLACE: screen.Columns[InputFindings] = {
    "input partition": lambda one: f"{one.bounds.topic}/{one.bounds.partition}"
}
_TOTAL: dict[str, screen.Cell] = {"input partition": "total"}


def _classes(audit: Audit) -> list[Class]:
    return [one for one in ANOMALIES if one.name in audit.anomalies]


def _lag(one: InputFindings) -> int:
    bounds = one.bounds
    return bounds.end - (bounds.low if bounds.committed is None else bounds.committed)


def _count(name: str, one: InputFindings) -> int:
    return one.counts.get(name, 0)


def _judged(name: str, one: InputFindings) -> Text:
    return screen.judged(_count(name, one))


def _sum(counts: dict[str, int]) -> int:
    return sum(counts.get(one.name, 0) for one in ANOMALIES)
