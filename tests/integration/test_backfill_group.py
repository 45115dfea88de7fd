"""Who may read a span: several processes of one app, and nobody who came for something else."""

import json
import sys
from importlib.util import find_spec

from hapax.core.offset_commit import CommittedMetadata
from tests.kit.commands import run_captured
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.routes import a_route
from tests.kit.topics import Given, beside
from tests.kit.waiting import await_

PARTITIONS, EACH = 4, 25
ALL = {"INPUT__END": "latest", "GROUP__SESSION_TIMEOUT": "6s", "TRANSACTION__TIMEOUT": "4s"}
WITHIN_S = 60

route = a_route(
    *(
        Given(b"%d/%d" % (partition, n), partition=partition)
        for n in range(EACH)
        for partition in range(PARTITIONS)
    ),
    partitions=PARTITIONS,
)


def backfill(route: PipelineUnderTest, *words: str, **settings: str) -> tuple[int, str, str]:
    """Run the command to its end; return exit code, standard output and standard error."""
    end = run_captured(
        [sys.executable, "-m", "hapax", "backfill", *words],
        env={**route.environment(**settings), "HAPAX_INSTANCE": "b-0"},
        timeout=WITHIN_S,
    )
    return end.returncode, end.stdout, end.stderr


def ended(worker: WorkerProcess) -> int:
    return worker.exit_code()


def test_members_that_start_at_once_share_one_span_and_all_of_them_end(route):
    members = [route.worker(f"b-{number}", **ALL) for number in range(3)]
    await_(lambda: None not in route.committed().values(), WITHIN_S, members[0].text)
    route.write(*(Given(b"later", partition=number) for number in range(PARTITIONS)))
    assert [ended(each) for each in members] == [0, 0, 0], [each.text() for each in members]
    values = [record.value for record in route.outputs()]
    assert len(values) == len(set(values)) == PARTITIONS * EACH
    assert route.committed() == dict.fromkeys(range(PARTITIONS), EACH)


def test_the_span_is_kept_by_workers_that_take_over_and_a_later_start_ends_at_once(route):
    assert backfill(route)[0] == 0
    worker = route.worker("b-0")
    [line] = worker.lines("service_started") or _await_line(worker)
    if find_spec("hapax_fast"):
        assert str(line["record_path"]).startswith("native")  # what is cut is cut there, too
    route.write(*(Given(b"later", partition=number) for number in range(PARTITIONS)))
    route.await_lag_0()
    assert worker.terminate() == 0
    texts = beside(route.bootstrap, route.app, route.source).values()
    spans = [CommittedMetadata.decode(text).span for text in texts]
    assert [(span.start, span.stop) for span in spans if span] == [(0, EACH)] * PARTITIONS
    after = route.committed()
    code, out, _err = backfill(route, "--json")
    assert code == 0
    told = json.loads(out.splitlines()[-1])  # latest is what it was at the first start
    assert (told["state"], told["total"]) == ("done", PARTITIONS * EACH)
    assert route.committed() == after == dict.fromkeys(range(PARTITIONS), EACH + 1)


def _await_line(worker: WorkerProcess) -> list[dict[str, object]]:
    await_(lambda: worker.lines("service_started"), 30, worker.text)
    return worker.lines("service_started")


def test_offsets_name_a_span_to_the_record(route):
    def every(*offsets: int) -> str:
        return ",".join(f"{route.source}/{n}/{offset}" for n, offset in enumerate(offsets))

    words = ("--from", every(3, 0, 24, 7), "--until", every(5, 0, 25, 8))
    code, out, _err = backfill(route, *words, "--dry-run")
    assert (code, "4 offsets in 4 partitions, 0 of them done" in out) == (0, True)
    assert set(route.committed().values()) == {None}
    code, out, _err = backfill(route, *words)
    assert code == 0
    assert f"HAPAX_APP={route.app} HAPAX_ENGINE=worker hapax run" in out
    found = {record.value for record in route.outputs()}
    assert found == {b"0/3", b"0/4", b"2/24", b"3/7"}
    assert route.committed() == {0: 5, 1: 0, 2: 25, 3: 8}


def test_an_app_with_offsets_of_its_own_or_of_another_span_is_refused_and_nothing_is_read(route):
    refusals = []
    code, _out, err = backfill(route, "--from", "1d", "--until", "2030-01-01")
    refusals.append((code, "lies in the future" in err))
    code, _out, err = backfill(route, "--from", f"{route.source}/0/1")
    refusals.append((code, "names no offset of" in err))
    code, _out, err = backfill(route, "--from", "latest")
    refusals.append((code, "leaves nothing before" in err))
    assert refusals == [(3, True), (2, True), (2, True)]
    assert set(route.committed().values()) == {None}
    route.run_to_end()
    done = route.committed()
    code, _out, err = backfill(route)
    assert (code, "already, which no span began" in err) == (3, True)
    worker = route.worker("b-0", **ALL)
    assert ended(worker) == 3
    assert "already, which no span began" in worker.text()
    assert route.committed() == done
    assert len(route.outputs()) == PARTITIONS * EACH


def test_another_span_of_the_same_app_is_refused(route):
    assert backfill(route)[0] == 0
    code, _out, err = backfill(route, "--until", "2020-01-01")
    assert (code, "reads another span" in err) == (3, True)
