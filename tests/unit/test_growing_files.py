import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hapax.core.errors import ConfigurationError, HapaxError
from hapax.operations import spooled
from hapax.operations.files import growing
from hapax.operations.files.names import FileGapError
from tests.kit.spooler import KilledError, MemorySpool, Reading, ScriptedReader

CSV = b'id,say\n1,"a\nb"\n2,""\n3,"""x"",\ny\n"\n4,z\n'
CSV_ROWS = [
    {"id": "1", "say": "a\nb"},
    {"id": "2", "say": ""},
    {"id": "3", "say": '"x",\ny\n'},
    {"id": "4", "say": "z"},
]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    """Nothing else writes to these files: there is nothing to wait for."""
    monkeypatch.setattr(growing, "POLL_S", 0)
    monkeypatch.setattr(growing, "QUIET_S", 0)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "orders.log"


def add(path: Path, text: bytes) -> Callable[[], object]:
    def step() -> None:
        with path.open("ab") as file:
            file.write(text)

    return step


def rotate(path: Path, ending: str = ".1", *, at_s: int = 0) -> Callable[[], object]:
    """Rename it; ``at_s``: when it was last written, by its time stamp."""

    def step() -> None:
        moved = path.with_name(path.name + ending)
        path.rename(moved)
        if at_s:
            os.utime(moved, (at_s, at_s))

    return step


def test_a_file_that_is_not_followed_ends_with_its_last_line_complete_or_not(log):
    log.write_bytes(b"a\n\nb\nc")
    reading = Reading(log)
    assert reading.run().accepted == 3
    assert reading.spool.values == [b"a", b"b", b"c"]
    (accepted,) = reading.receipts.getvalue().splitlines()
    assert json.loads(accepted) == {"event": "accepted", "line": 4, "sequence": 3}
    reading.run()
    assert reading.spool.values == [b"a", b"b", b"c"]


def test_a_line_of_a_file_that_grows_waits_until_it_is_complete(log):
    log.write_bytes(b"a\nb")
    reading = Reading(log, follow=True)
    reading.run()
    assert reading.spool.values == [b"a"]
    reading.run(add(log, b"c"), add(log, b"\nd\n"))
    assert reading.spool.values == [b"a", b"bc", b"d"]


def test_a_renamed_file_is_finished_before_the_next_one_is_read(log):
    log.write_bytes(b"a\n")
    old = log.with_name("orders.log.1")
    reading = Reading(log, follow=True)
    reading.run(rotate(log), add(old, b"b\nc"), add(log, b"d\n"), add(log, b"e\n"))
    assert reading.spool.values == [b"a", b"b", b"c", b"d", b"e"]
    reading.run(add(log, b"f\n"))
    assert reading.spool.values[4:] == [b"e", b"f"]


@pytest.mark.parametrize("follow", [True, False], ids=["follow", "to the end"])
def test_what_was_renamed_while_no_process_ran_is_read_to_its_end(log, *, follow):
    log.write_bytes(b"a\nb\nc\n")
    reading = Reading(log, follow=follow)
    reading.spool.dies_after = 0
    with pytest.raises(KilledError):
        reading.run()
    reading.spool.dies_after = None
    Reading(log, reading.spool, follow=True).run()
    for number, text in enumerate([b"d\n", b"e\n", b"f\n"]):
        add(log, text)()
        rotate(log, f"-2030010{number + 1}", at_s=1_900_000_000 + number)()
    log.write_bytes(b"g\n")
    os.utime(log, (1_900_000_009, 1_900_000_009))
    reading.run()
    assert b"".join(reading.spool.values) == b"abcdefg"


def test_a_rotated_file_that_was_compressed_before_it_was_read_stops_it(log):
    log.write_bytes(b"a\n")
    reading = Reading(log, follow=True)
    reading.run()
    os.utime(log, (1_900_000_000,) * 2)
    rotate(log, ".2")()
    packed = log.with_name("orders.log.1.gz")
    packed.write_bytes(b"")
    os.utime(packed, (1_900_000_001,) * 2)
    add(log, b"c\n")()
    with pytest.raises(FileGapError, match=r"orders\.log\.1\.gz was compressed"):
        reading.run()


def test_bytes_that_come_to_a_renamed_file_too_late_are_not_lost_in_silence(log):
    log.write_bytes(b"a\n")
    old = log.with_name("orders.log.1")
    reading = Reading(log, follow=True)
    with pytest.raises(HapaxError, match="5 bytes were added to a file after it was renamed"):
        reading.run(rotate(log), add(log, b"b\n"), lambda: None, add(old, b"late\n"))
    assert reading.spool.values == [b"a", b"b"]


def truncate_while_it_is_read(log: Path, reading: Reading) -> None:
    reading.run(lambda: log.write_bytes(b"x\n"))


def write_anew_while_it_is_read(log: Path, reading: Reading) -> None:
    reading.run(lambda: log.write_bytes(b"other\nlines\nand more\n"))


def truncate_while_no_process_runs(log: Path, reading: Reading) -> None:
    reading.run()
    log.write_bytes(b"x\n")
    reading.run()


def write_anew_while_no_process_runs(log: Path, reading: Reading) -> None:
    reading.run()
    log.write_bytes(b"first\nsecomd\nand more\n")
    reading.run()


def remove_while_no_process_runs(log: Path, reading: Reading) -> None:
    reading.run()
    log.rename(log.with_name("elsewhere"))
    log.write_bytes(b"first\n")
    reading.run()


GAPS = [
    truncate_while_it_is_read,
    write_anew_while_it_is_read,
    truncate_while_no_process_runs,
    write_anew_while_no_process_runs,
    remove_while_no_process_runs,
]


@pytest.mark.parametrize("gap", GAPS, ids=lambda gap: gap.__name__)
def test_lines_that_may_be_gone_stop_it_unless_a_person_says_otherwise(log, gap):
    text = b"first\nsecond\n"
    log.write_bytes(text)
    with pytest.raises(FileGapError, match="--on-gap restart") as stopped:
        gap(log, reading := Reading(log, follow=True))
    assert stopped.value.exit_code == 6
    assert reading.spool.values == [b"first", b"second"]
    now = log.read_bytes().splitlines()
    Reading(log, reading.spool, follow=True, restart=True).run()
    assert reading.spool.values == [b"first", b"second", *now]
    log.write_bytes(text)
    gap(log, again := Reading(log, follow=True, restart=True))
    assert again.spool.values == [b"first", b"second", *log.read_bytes().splitlines()]
    assert any("reading from the beginning" in text for text in again.warnings)


def test_a_file_that_was_read_to_its_end_may_be_replaced_by_the_next(log):
    log.write_bytes(b"a\n")
    reading = Reading(log)
    reading.run()
    log.unlink()
    log.write_bytes(b"b\n")
    reading.run()
    assert reading.spool.values == [b"a", b"b"]


@pytest.mark.parametrize("follow", [True, False], ids=["follow", "to the end"])
def test_a_reader_that_dies_at_any_byte_of_a_growing_csv_file_loses_and_doubles_no_row(
    log, monkeypatch, *, follow
):
    monkeypatch.setattr(spooled, "BATCH_RECORDS", 1)
    for cut in range(len(CSV) + 1):
        for dies_after in range(len(CSV_ROWS) + 1):
            log.unlink(missing_ok=True)
            log.write_bytes(CSV[:cut] if follow else CSV)
            reading = Reading(log, follow=follow, form="csv")
            reading.spool.dies_after = dies_after
            try:
                reading.run(add(log, CSV[cut:])) if follow else reading.run()
            except KilledError:
                # The writer goes on, whatever becomes of the reader.
                if log.stat().st_size == cut:
                    add(log, CSV[cut:])() if follow else None
            reading.spool.dies_after = None
            reading.run()
            assert [json.loads(value) for value in reading.spool.values] == CSV_ROWS
            assert len(reading.spool.writes) >= len(CSV_ROWS)
        if not follow:
            break


def test_the_next_csv_file_has_a_header_of_its_own(log):
    log.write_bytes(b"id,say\n1,a\n")
    reading = Reading(log, follow=True, form="csv")
    reading.run(rotate(log), add(log, b"say,id\nb,2\n"), add(log, b"c,3\n"))
    reading.run(add(log, b"d,4\n"))
    found = [json.loads(value) for value in reading.spool.values]
    assert found == [{"id": str(number + 1), "say": "abcd"[number]} for number in range(4)]


def test_a_full_spool_is_waited_for_and_nothing_is_read_meanwhile(log):
    log.write_bytes(b"a\nb\n")
    reading = Reading(log)
    reading.spool.full = 3
    assert reading.run().accepted == 2
    assert reading.spool.values == [b"a", b"b"]


@pytest.mark.parametrize("batch", [1, 2])
def test_rows_that_found_no_room_before_a_stop_come_before_all_later_ones(log, monkeypatch, batch):
    monkeypatch.setattr(spooled, "BATCH_RECORDS", batch)
    log.write_bytes(b"a\nb\nc\nd\ne\n")
    reading = Reading(log)
    reading.spool.full = 1
    reader = ScriptedReader(reading, ())
    monkeypatch.setattr(reader, "_stopping", lambda: not reading.spool.full)
    reader.read_file(log)
    assert reading.spool.values == []
    reading.run()
    assert reading.spool.values == [b"a", b"b", b"c", b"d", b"e"]


def test_a_line_that_is_no_record_stops_it_or_is_left_out(log):
    log.write_bytes(b'{"a": 1}\nnonsense\n{"a": 2}\n')
    reading = Reading(log, form="json-lines")
    for _start in range(2):
        with pytest.raises(HapaxError, match=r"line 2 is not JSON.*--skip-bad-lines"):
            reading.run()
        assert reading.spool.values == [b'{"a": 1}']
    leaving = Reading(log, reading.spool, form="json-lines", skip_bad=True)
    assert leaving.run().skipped == 1
    assert leaving.warnings == ["left out: line 2 is not JSON"]
    assert reading.spool.values == [b'{"a": 1}', b'{"a": 2}']


def test_a_spool_of_another_source_form_or_program_is_refused(log):
    log.write_bytes(b"a\n")
    spool = MemorySpool()
    Reading(log, spool).run()
    other = log.with_name("other.log")
    other.write_bytes(b"b\n")
    with pytest.raises(ConfigurationError, match=r"belongs to .*orders\.log, not to .*other\.log"):
        Reading(other, spool).run()
    with pytest.raises(ConfigurationError, match="was read with --format lines so far"):
        Reading(log, spool, form="csv").run()
    spool.position = b"of a program"
    with pytest.raises(ConfigurationError, match="filled by another program"):
        Reading(log, spool).run()
    assert spool.values == [b"a"]


def test_many_rows_are_accepted_some_at_a_time(log, monkeypatch):
    monkeypatch.setattr(spooled, "BATCH_RECORDS", 100)
    log.write_bytes(b"".join(b"%d\n" % number for number in range(250)))
    reading = Reading(log)
    reading.run()
    assert reading.spool.writes == [100, 100, 50]


def test_a_record_that_is_refused_stops_it_after_those_before_it(log):
    log.write_bytes(b"a\nb\ntoo large\nc\n")
    reading = Reading(log)
    reading.spool.bytes_max = 5
    for _start in range(2):
        with pytest.raises(HapaxError, match="line 3: too large; everything before it"):
            reading.run()
        assert reading.spool.values == [b"a", b"b"]
    reading.spool.bytes_max = 100
    reading.run()
    assert reading.spool.values == [b"a", b"b", b"too large", b"c"]
