"""What an audit concludes from its rows, stated once: in SQL that SQLite and Spark both take.

inputs      one row for each input record, aborted ones included
effects     one row for each output, dead letter and record that waits, of this pipeline
placed      effects, and whether they are judged: not before the start, beyond the end, or at or
            above the committed offset although they were visible before that was read
slots       effects of one record that mean the same
found       effects of one record
matched     inputs with their effects; ``orphans``: effects without an input
shared      ids that several records have; one owner of an id has the effects
decided     what each record came to; ``odd``: those with anomalies
disordered  effects after one of a later record, in one output partition

Both tables are read in stretches. Each stretch ends with one more row that has ``read`` set: it
counts, and it proves that the stretch was read to its end. In this process SQLite keeps what its
cache does not hold in a file without a name, which ends with the process.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hapax.operations.audit.result import NAMES, Compare, IncompleteError, OutputFindings, audit_of
from hapax.operations.audit.rows import DEAD_SLOT, OFFSETS, POISON, WAITING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hapax.core.ports import Tell
    from hapax.kafka.read.range_reader import OffsetRange
    from hapax.operations.audit.result import Audit, Scope

    Row = tuple[Any, ...]

INPUTS = (
    "place int, offset long, visible boolean, owner long, id binary, outputs int, content long,"
    " topics string, read long"
)
EFFECTS = (
    "lane int, at long, place int, offset long, slot int, parts int, content long,"
    " unchecked boolean, id binary, read long, others long, hidden long"
)
_BOUNDS = "place int, start long, until long, committed long, compacted boolean"
_LANES = "lane int, settled long"
_SLOTS = 1 << 18
"""Outputs of one record whose order is judged: offset and slot are one number, too."""
_NUMBERS = {
    "dead": DEAD_SLOT,
    "offsets": OFFSETS,
    "poison": POISON,
    "slots": _SLOTS,
    "waiting": WAITING,
}


class Ranges(Protocol):
    """Ranges of offsets; a call yields the rows of the one with this number, some at a time.

    It travels to executors, so its class is in a module that they can import.
    """

    @property
    def stretches(self) -> Sequence[OffsetRange]: ...

    def __call__(self, number: int) -> Iterator[list[Row]]: ...


class Engine(Protocol):
    """Reads rows, ``cores`` ranges at once, and answers SQL. Raises IncompleteError."""

    cores: int

    def read(self, table: str, task: Ranges, what: str) -> None:
        """Read all ranges of a task into a table; may be called again for what came meanwhile."""

    def load(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        """Make a small table."""

    def define(self, view: View) -> None:
        """Give the answer to a query a name."""

    def rows(self, query: str) -> list[Row]:
        """Return the answer to a query, which is short."""


class View(NamedTuple):
    """A query with a name.

    by   None: it is asked for once; otherwise the columns by which others look into it, if any
    few  whether it has few rows, unless much is wrong
    """

    name: str
    query: str
    by: str | None = None
    few: bool = False


_VIEWS = (
    View(
        "placed",
        """
        select e.lane, e.at, e.place, e.offset, e.parts, e.content, e.unchecked,
            case when e.slot < {dead} then {waiting} else e.slot end as slot,
            e.slot = {waiting} as waiting,
            e.lane * {offsets} + e.at as spot,
            case
                when e.place < 0 then 'nowhere'
                when e.offset < b.start then 'before'
                when e.offset < b.until then 'judged'
                when e.offset >= b.committed and e.at < l.settled then 'ahead'
                else 'later'
            end as fate
        from effects e
        left join bounds b on b.place = e.place
        left join lanes l on l.lane = e.lane
        where e.read is null
        """,
    ),
    View(
        "slots",
        """
        select place, offset, slot, parts,
            count(*) as times,
            min(content) as content,
            min(content) <> max(content) as mixed,
            min(unchecked) as unchecked,
            max(waiting) as waiting,
            max(spot) as spot
        from placed where fate = 'judged' group by place, offset, slot, parts
        """,
    ),
    View(
        "found",
        """
        select place, offset,
            sum(case when slot >= {dead} then times else 0 end) as effects,
            sum(times - 1) as extra,
            sum(case when slot > {dead} then 1 else 0 end) as outs,
            sum(case when slot = {dead} then 1 else 0 end) as dead,
            min(case when slot > {dead} then parts end) as parts_min,
            max(case when slot > {dead} then parts end) as parts_max,
            sum(case when slot > {dead} then content end) as written,
            max(case when slot = {dead} then content end) as letter,
            max(mixed) as mixed,
            min(case when slot >= {dead} then unchecked end) as unchecked,
            max(waiting) as waiting,
            max(slot < {dead}) as waited,
            max(case when slot >= {dead} then spot end) as spot
        from slots group by place, offset
        """,
        by="place, offset",
    ),
    View(
        "matched",
        """
        select i.place, i.offset, i.visible, i.owner, i.outputs as due, g.spot,
            case when {claimed} then i.id end as id,
            i.offset >= b.start and i.offset < b.until as judged,
            coalesce(g.effects, 0) as effects,
            coalesce(g.extra, 0) as extra,
            coalesce(g.outs, 0) as outs,
            coalesce(g.dead, 0) as dead,
            coalesce(g.outs > 0 and (g.parts_min <> g.parts_max or g.outs <> g.parts_max), false)
                as torn,
            coalesce({differs}, false) as differs,
            coalesce(g.unchecked, false) as unchecked,
            coalesce(g.waiting, false) as waiting,
            coalesce(g.waited, false) as waited
        from inputs i
        left join bounds b on b.place = i.place
        left join found g on g.place = i.place and g.offset = i.offset
        where i.read is null
        """,
        by="",
    ),
    View(
        "orphans",
        """
        select g.place, g.offset, g.effects, g.spot, b.compacted
        from found g
        left join bounds b on b.place = g.place
        left join inputs i on i.place = g.place and i.offset = g.offset
        where i.place is null and g.effects > 0
        """,
        by="",
        few=True,
    ),
    View(
        "shared",
        """
        select id,
            min(case when waiting or (effects > 0 and not unchecked) then owner end) as owner,
            max(effects > 0 or waiting or not judged or coalesce(due = 0, false)) as explained,
            min(case when judged then place * {offsets} + offset end) as first
        from matched where visible and id is not null group by id having count(*) > 1
        """,
        by="id",
        few=True,
    ),
    View("old", "select distinct id from effects where id is not null", by="id", few=True),
    View(
        "decided",
        """
        select m.*, m.visible and m.judged as real,
            (m.waiting or (m.effects > 0 and not m.unchecked)) and m.owner <> s.owner as again,
            m.effects = 0 and not m.waiting and coalesce(m.due <> 0, true) as bare,
            case
                when m.owner = s.owner then 'alone'
                when o.id is not null or s.explained then 'elsewhere'
                when s.id is null then 'alone'
                when m.place * {offsets} + m.offset = s.first then 'lost'
                else 'elsewhere'
            end as event
        from matched m
        left join shared s on s.id = m.id
        left join old o on o.id = substr(m.id, 1, 16)
        """,
    ),
    View(
        "late",
        """
        select lane, at, place, offset, slot, parts, spot, last
        from (
            select *, max(nth) over (partition by lane, place order by at rows unbounded preceding)
                as last
            from (
                select *, offset * {slots} + (case when slot < {slots} then slot else {slots} - 1
                    end) as nth
                from placed where fate = 'judged' and slot >= {dead}
            ) numbered
        ) ranked
        where nth < last
        """,
        by="",
        few=True,
    ),
    View(
        "disordered",
        """
        select o.place, o.offset, o.spot, o.last
        from late o
        join slots s on s.place = o.place and s.offset = o.offset and s.slot = o.slot
            and s.parts = o.parts
        join matched m on m.place = o.place and m.offset = o.offset
        where s.times = 1 and m.visible and not m.waited
        """,
    ),
)
_DIFFERS = {
    Compare.NONE: "false",
    Compare.COUNTS: "g.outs > 0 and i.outputs <> g.outs",
    Compare.VALUES: "(g.outs > 0 and i.outputs <> g.outs)"
    " or g.mixed or (g.outs > 0 and i.content <> g.written)"
    " or (i.outputs = {poison} and g.outs = 0 and g.dead > 0 and i.content <> g.letter)",
}
_RECORDS = {
    "records": "real",
    "with_outputs": "real and outs > 0",
    "dead_letters": "real and outs = 0 and dead > 0",
    "waiting": "real and effects = 0 and waiting",
    "filtered": "real and effects = 0 and not waiting and due = 0",
    "duplicates": "real and bare and event = 'elsewhere'",
    "unexplained": "real and bare and event <> 'elsewhere' and due is null",
    "missing": "real and bare and event = 'alone' and due is not null",
    "dedup_loss": "real and bare and event = 'lost' and due is not null",
    "repeated": "real and again",
    "unchecked": "real and effects > 0 and unchecked",
    "torn": "real and torn",
    "wrong": "real and not torn and differs",
    "hidden": "judged and not visible",
    "unexpected_dead": "real and effects > 0 and outs = 0 and due >= 0",
}
"""What records come to, by name. Of a record without effects, that it is

event  alone      no other record has the id, or the record is its owner
       elsewhere  another record had or will have the effect, or was filtered
       lost       the first of several, and none of them has an effect
"""
_COUNTS = {name: f"case when {when} then 1 else 0 end" for name, when in _RECORDS.items()} | {
    "from_aborted": "case when judged and not visible then effects else 0 end",
    "doubled": "case when real then extra else 0 end"
    " + (case when real and outs > 0 and dead > 0 then 1 else 0 end)",
    "outputs": "case when real then outs else 0 end",
}
_ODD = " + ".join(_COUNTS[name] for name in NAMES if name in _COUNTS)
_EXAMPLES = {
    "orphaned": "select place, offset, spot from orphans where not compacted"
    " union all select place, offset, spot from placed where fate = 'nowhere'",
    "ahead": "select place, offset, spot from placed where fate = 'ahead'",
    "out_of_order": "select place, offset, spot, 0, null, last from disordered",
}


def named_topics(engine: Engine) -> set[str]:
    """Return the topics that the transform chose itself."""
    found = engine.rows("select distinct topics from inputs where topics is not null")
    return {topic for (topics,) in found for topic in topics.split(",")}


def first_named(engine: Engine, lanes: list[int]) -> dict[int, int]:
    """Return by place of input the highest of the first offsets that these lanes name."""
    found = engine.rows(
        "select place, max(least) from (select place, min(offset) as least from effects"  # noqa: S608 - own numbers
        f" where lane in ({', '.join(map(str, lanes))}) and place >= 0 group by place, lane) firsts"
        " group by place"
    )
    return dict(found)


def judge(engine: Engine, scope: Scope) -> Audit:
    bounds = [
        (place, one.start, one.until, 0 if one.committed is None else one.committed, one.compacted)
        for place, one in enumerate(scope.inputs)
    ]
    engine.load("bounds", _BOUNDS, bounds)
    lanes = [(lane, one.settled) for lane, one in enumerate(scope.outputs)]
    engine.load("lanes", _LANES, lanes)
    rules = {
        "claimed": str(scope.claimed).lower(),
        "differs": _DIFFERS[scope.compare].format(**_NUMBERS),
    }
    for view in _VIEWS:
        engine.define(view._replace(query=view.query.format(**_NUMBERS, **rules)))
    audit = audit_of(scope, _counted(engine, scope), _outputs(engine, scope))
    if audit.anomalies and scope.examples_max:
        engine.define(View("odd", f"select * from decided where {_ODD} > 0", "", few=True))  # noqa: S608 - own names
        audit.examples = {name: _examples(engine, name, scope) for name in audit.anomalies}
    return audit


def _counted(engine: Engine, scope: Scope) -> dict[int, dict[str, int]]:
    sums = ", ".join(f"sum({count}) as {name}" for name, count in _COUNTS.items())
    found: dict[int, dict[str, int]] = defaultdict(Counter)
    for place, *counts in engine.rows(f"select place, {sums} from decided group by place"):  # noqa: S608 - own names
        named = zip(_COUNTS, counts, strict=True)
        found[place] = Counter({name: count for name, count in named if count})
    more = engine.rows(
        "select place, fate, count(*) from placed where fate <> 'judged' group by place, fate"
    )
    orphans = engine.rows("select place, sum(effects) from orphans group by place")
    more += [(at, "gone" if scope.inputs[at].compacted else "orphaned", n) for at, n in orphans]
    if engine.rows("select 1 from late limit 1"):
        disordered = "select place, 'out_of_order', count(*) from disordered group by place"
        more += engine.rows(disordered)
    for place, fate, count in more:
        found[place]["orphaned" if fate == "nowhere" else fate] += count
    return found


def _outputs(engine: Engine, scope: Scope) -> list[OutputFindings]:
    found = [OutputFindings(bounds=bounds) for bounds in scope.outputs]
    for lane, *sums in engine.rows(
        "select lane, sum(read), sum(others), sum(hidden) from effects where read is not null"
        " group by lane"
    ):
        found[lane].records, found[lane].foreign, found[lane].hidden = sums
    return found


def _examples(engine: Engine, name: str, scope: Scope) -> list[str]:
    query, order = _EXAMPLES.get(name, ""), "place, offset, spot"
    if not query:
        query = f"select place, offset, spot, effects, due from odd where {_COUNTS[name]} > 0"  # noqa: S608 - own names
    elif name == "out_of_order":
        order = "spot"
    rows = engine.rows(f"{query} order by {order} limit {scope.examples_max}")
    return [_sentence(name, scope, *row) for row in rows]


def _sentence(
    name: str,
    scope: Scope,
    place: int,
    offset: int,
    spot: int | None,
    effects: int = 0,
    due: int | None = None,
    nth: int = 0,
) -> str:
    """Name the record of an anomaly, and the last of its effects.

    ``spot``: its lane and offset. ``nth``: offset and slot of the later record before it.
    """
    source = "a record that cannot be identified"
    if place >= 0:
        source = f"{scope.inputs[place].topic}/{scope.inputs[place].partition}/{offset}"
    if spot is None:
        return source
    lane = scope.outputs[spot // OFFSETS]
    effect = f"{lane.topic}/{lane.partition}/{spot % OFFSETS}"
    if name == "out_of_order":
        return f"{source} at {effect}, after {nth // _SLOTS}"
    if name in {"doubled", "torn", "wrong"}:
        wanted = "" if due is None or due < 0 else f", {due} due"
        return f"{source}: {effects} effects{wanted}, the last at {effect}"
    return f"{source} at {effect}"


# -- In this process: ranges are read one after the other, SQLite judges their rows ----------------


CACHE_KB = 64 * 1024
"""Memory of the tables; each sort may take as much again."""
_SETTINGS = f"""
pragma journal_mode = off;
pragma synchronous = off;
pragma temp_store = file;
pragma cache_size = -{CACHE_KB};
"""
_STEPS = 1_000_000
"""Of SQLite's machine, between two reports and looks for Ctrl-C."""


class LocalAudit:
    """Reads and judges in this process; see hapax.operations.audit.judgement.Engine."""

    cores = 1

    def __init__(self, report: Tell) -> None:
        self._report = report
        self._base = sqlite3.connect("", isolation_level=None)
        self._base.executescript(f"{_SETTINGS}begin;")
        self._base.set_progress_handler(self._judging, _STEPS)
        self.load("inputs", INPUTS, [])
        self.load("effects", EFFECTS, [])

    @classmethod
    @contextmanager
    def opened(cls, report: Tell) -> Iterator[LocalAudit]:
        audit = cls(report)
        with closing(audit._base):
            yield audit

    def read(self, table: str, task: Ranges, what: str) -> None:
        offsets = sum(one.end - one.start for one in task.stretches)
        done = 0
        for number, one in enumerate(task.stretches):
            ended = False
            self._report(what, done, offsets)
            for rows in task(number):
                if rows:
                    ended = rows[-1][1] is None
                    self.add(table, rows)
                    at = one.end if ended else rows[-1][1]
                    self._report(what, done + at - one.start, offsets)
            if not ended:
                raise IncompleteError(f"{one.topic}/{one.partition} was not read to its end")
            done += one.end - one.start

    def load(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        names = ", ".join(column.split()[0] for column in columns.split(","))
        self.rows(f"create table {table} ({names})")
        self.add(table, rows)

    def add(self, table: str, rows: Sequence[Row]) -> None:
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            with _refused():
                self._base.executemany(f"insert into {table} values ({marks})", rows)  # noqa: S608 - own names

    def define(self, view: View) -> None:
        self._judging()
        kind = "view" if view.by is None else "table"
        self.rows(f"create {kind} {view.name} as {view.query}")
        if view.by:
            self.rows(f"create index by_{view.name} on {view.name} ({view.by})")

    def rows(self, query: str) -> list[Row]:
        with _refused():
            return list(self._base.execute(query))

    def _judging(self) -> int:
        self._report("judging")
        return 0


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:  # the handler met Ctrl-C
            raise KeyboardInterrupt from error
        raise IncompleteError(
            f"the workspace of the audit failed: {error}. About 250 bytes for each input record are"
            " needed in the temporary folder (TMPDIR); name one with room, or use --engine spark"
        ) from error
