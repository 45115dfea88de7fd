"""Tables of the report: from runs and cases to rows of text."""

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tests.fault.reporting.matrix import DELIVERIES, NOT_BUILT, ROWS
from tests.fault.results import VIOLATIONS, Case, Counts, Run, Strike

GAP = "**gap**"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; columns whose name ends in ``#`` are numbers."""
    lines = [
        "| " + " | ".join(head.rstrip("#") for head in heads) + " |",
        "|" + "|".join("--:" if head.endswith("#") else "---" for head in heads) + "|",
    ]
    lines += ["| " + " | ".join(_text(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def filled_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table without the columns in which nothing was measured."""
    lines = list(rows)
    kept = [at for at, _ in enumerate(heads) if not lines or any(row[at] != "" for row in lines)]
    return table([heads[at] for at in kept], ([row[at] for at in kept] for row in lines))


def total(runs: Iterable[Run]) -> Counts:
    whole = Counts()
    for run in runs:
        for name in whole.__struct_fields__:
            setattr(whole, name, getattr(whole, name) + getattr(run.judgement.counts, name))
    return whole


def summary(runs: Sequence[Run], cases: Sequence[Case] = ()) -> str:
    """What was run, in total. ``cases``: tests that strike by themselves, told apart."""
    counts = total(runs)
    strikes = [strike for run in runs for strike in run.strikes]
    found = sum(sum(run.judgement.violations.values()) for run in runs)
    figures = {
        "input records": counts.records,
        "of these events sent again": counts.duplicates,
        "outputs": counts.outputs,
        "dead letters": counts.dead_letters,
        "filtered": counts.filtered,
        "faults": len(strikes),
        "times they struck": sum(strike.struck for strike in strikes),
        "tests of single faults, in addition to these runs": sum(bool(one.struck) for one in cases),
        "transactions committed": counts.committed,
        "transactions aborted": counts.aborted,
        "transactions whose outcome was unknown at first": counts.unknown,
        "output records of aborted transactions, hidden": counts.hidden_out,
        "input records of aborted transactions, hidden": counts.hidden_in,
        "rebalances seen by members": counts.rebalances,
        "producers fenced": counts.fences,
        "producers replaced because of a doubt": counts.doubt_fences,
        "processes killed": counts.kills,
        "hours": f"{sum(run.seconds for run in runs) / 3600:.1f}",
        "**violations**": f"**{found}**",
    }
    return table(("in all runs", "#"), figures.items())


def runs_table(runs: Sequence[Run]) -> str:
    return table(
        (
            *("run", "engine", "seed", "commit", "machine", "minutes#"),
            *("records#", "faults#", "violations#"),
        ),
        (
            (
                run.name,
                run.engine,
                run.seed,
                run.commit,
                "shared" if run.shared else "its own",
                f"{run.seconds / 60:.1f}",
                run.judgement.counts.records,
                len(run.strikes),
                sum(run.judgement.violations.values()),
            )
            for run in runs
        ),
    )


def faults_table(runs: Sequence[Run]) -> str:
    """Return one line for each class of faults; times are those of runs that were alone."""
    kinds: dict[str, list[Strike]] = defaultdict(list)
    timed: dict[str, list[Strike]] = defaultdict(list)
    for run in runs:
        for strike in run.strikes:
            kinds[_class(strike.fault)].append(strike)
            if not run.shared:
                timed[_class(strike.fault)].append(strike)
    return filled_table(
        (
            *("fault", "struck#", "p50 s#", "max s#"),
            *("beyond the brokers, max s#", "LSO stall s#"),
        ),
        (
            (
                fault,
                sum(one.struck for one in strikes),
                *_spread([one.recovery_s for one in timed[fault] if one.recovery_s is not None]),
                _seconds(max((_beyond_s(one) for one in timed[fault]), default=0.0)),
                _seconds(max((one.stall_s or 0.0 for one in timed[fault]), default=0.0)),
            )
            for fault, strikes in sorted(kinds.items())
        ),
    )


def _class(fault: str) -> str:
    """Return the fault without the step, the call or the fate of the request that it chose."""
    fault = re.sub(rf" ({'|'.join(DELIVERIES)})$", "", fault)
    return re.sub(r"^(worker dies|SIGTERM in) .*", r"\1 …", fault)


def promises_table(runs: Sequence[Run]) -> str:
    """Return one line for each promise of a time, with how often runs that were alone kept it."""
    kinds: dict[tuple[str, float], list[float]] = defaultdict(list)
    for run in runs:
        for strike in run.strikes:
            if strike.promised_s is not None and not run.shared:
                found_s = math.inf if strike.recovery_s is None else strike.recovery_s
                kinds[strike.promise, strike.promised_s].append(found_s)
    return table(
        ("after", "promised s#", "faults#", "within#", "p50 s#", "max s#"),
        (
            (
                promise,
                f"{promised_s:g}",
                len(found),
                sum(each <= promised_s for each in found),
                *_spread(found),
            )
            for (promise, promised_s), found in sorted(kinds.items())
        ),
    )


def violations_list(runs: Sequence[Run]) -> str:
    """Return the classes that were found, and those that were not with the bound of that."""
    events = max(1, total(runs).distinct)
    found: dict[str, int] = defaultdict(int)
    for run in runs:
        for name, count in run.judgement.violations.items():
            found[name] += count
    lines = [f"- **{name}: {found[name]:,}**" for name in VIOLATIONS if found[name]]
    absent = ", ".join(name for name in VIOLATIONS if not found[name])
    # The rule of three.
    lines.append(f"- Not found, each at 95 % fewer than one in {events / 3:,.0f} events: {absent}.")
    return "\n".join(lines)


def controls_table(runs: Sequence[Run]) -> str:
    return table(
        ("control", "records#", "showed", "verdict"),
        ((run.name, run.judgement.counts.records, _found(run), _verdict(run)) for run in runs),
    )


def matrix_table(runs: Sequence[Run], cases: Sequence[Case]) -> str:
    struck: dict[str, int] = defaultdict(int)
    for run in runs:
        for strike in run.strikes:
            for row in strike.rows:
                struck[row] += strike.struck
    tests: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        for row in case.rows:
            tests[row].append(case)
    lines, news = [], []
    before = ""
    for names, fault, must_hold in _grouped():
        counts = ", ".join(f"{struck[name]:,}" for name in names if struck[name])
        same = must_hold and must_hold == before
        lines.append((" ".join(names), fault, '"' if same else must_hold, counts))
        if reported := _news(names, struck, tests):
            news.append(f"{' '.join(names)} {reported}")
        before = must_hold
    rows = table(("row", "fault", "must hold beyond I1-I8", "struck in runs#"), lines)
    count = len({_name(case) for each in tests.values() for case in each})
    missing = ", ".join(news) or "none"
    return f"{rows}\n\n{count} tests play rows as well; not covered, or not passed: {missing}."


def _grouped() -> list[tuple[list[str], str, str]]:
    """Return the rows, with those that differ in what becomes of one request as one."""
    groups: list[tuple[list[str], str, str]] = []
    for name, row in ROWS.items():
        begin, _, moment = row.fault.rpartition(", ")
        last = groups[-1] if groups else None
        if moment in DELIVERIES and last and last[1].startswith(begin + ", "):
            groups[-1] = ([*last[0], name], f"{last[1]}, {moment}", row.must_hold)
        else:
            groups.append(([name], row.fault, row.must_hold))
    return groups


def gaps(runs: Sequence[Run], cases: Sequence[Case]) -> list[str]:
    """Return the rows that neither a strike nor a passed test covers, and no reason excuses."""
    strikes = [strike for run in runs for strike in run.strikes if strike.struck]
    covered = {row for strike in strikes for row in strike.rows}
    covered |= {row for case in cases if case.outcome == "passed" for row in case.rows}
    return [row for row in ROWS if row not in covered and row not in NOT_BUILT]


def _news(rows: list[str], struck: dict[str, int], tests: dict[str, list[Case]]) -> str:
    """Return outcomes other than passed, or why nothing covers all of these rows; else nothing."""
    cases = [case for row in rows for case in tests[row]]
    if not cases:
        return "" if all(struck[row] for row in rows) else NOT_BUILT.get(rows[0], GAP)
    return ", ".join(sorted({f"**{case.outcome}**" for case in cases if case.outcome != "passed"}))


def _name(case: Case) -> str:
    return case.test.rpartition("::")[2].partition("[")[0]


def _found(run: Run) -> str:
    found = run.judgement.violations.items()
    return ", ".join(f"{count:,} {name}" for name, count in found if count) or "nothing"


def _verdict(run: Run) -> str:
    if run.kind == "control":
        return "fails, as it must" if run.as_expected else "**survived**"
    return (
        "caught"
        if run.as_expected and run.expected
        else ("harmless" if run.as_expected else "**not caught**")
    )


def _beyond_s(strike: Strike) -> float:
    """Return what recovery took after the brokers led every partition again; 0: not measured."""
    if strike.recovery_s is None or strike.kafka_s is None:
        return 0.0
    return max(0.0, strike.recovery_s - strike.kafka_s)


def _spread(seconds: list[float]) -> tuple[str, str]:
    if not seconds:
        return "", ""
    return _seconds(statistics.median(seconds)), _seconds(max(seconds))


def _seconds(value: float) -> str:
    return f"{value:.1f}" if value else ""


def _text(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
