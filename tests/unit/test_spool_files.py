"""The files of a spool: flipped bits, folders that are refused, bounds, killed processes."""

import errno
import os
import shutil
import sys
from pathlib import Path
from random import Random
from unittest.mock import Mock

import pytest

from hapax.core.errors import ConfigurationError
from hapax.spool import folder, folder as folders
from hapax.spool.spool import ACKNOWLEDGED, DAMAGED_WAL, DATABASE, WAL, SpoolStore
from tests.kit.commands import output_of
from tests.kit.proof import rounds

ROOT = Path(__file__).parents[2]
RECORDS = [[b"one" * 300, b"two" * 700], [b"three" * 900], [b"", b"five" * 20]]
FLAT = [record for group in RECORDS for record in group]


def opened(path: Path, *, disk_max_bytes: int = 1 << 30, adopt: bool = False) -> SpoolStore:
    return SpoolStore(folder.Folder(path), "app", disk_max_bytes=disk_max_bytes, adopt=adopt)


def content(spool: SpoolStore) -> bytes:
    rows = spool.read(spool.first, 1000, 1 << 30)
    return b"".join(row.content for row in rows)


@pytest.fixture
def spool(tmp_path):
    made = opened(tmp_path / "spool")
    yield made
    made.close()


def after_a_kill(path: Path, *, checkpoint: bool) -> Path:
    """Return a folder as a process leaves it that was killed after all was acknowledged."""
    spool = opened(path / "open")
    for number, group in enumerate(RECORDS):
        spool.append(group, b"%d" % number)
    if checkpoint:
        spool._checkpoint("TRUNCATE")
    shutil.copytree(path / "open", path / "killed")
    spool.close()
    return path / "killed"


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("name", [WAL, DATABASE, ACKNOWLEDGED])
def test_a_bit_that_flips_in_what_was_acknowledged_is_reported_or_changes_nothing(
    tmp_path, name, *, checkpoint
):
    killed, chance, told = after_a_kill(tmp_path, checkpoint=checkpoint), Random(1), 0
    whole = (killed / name).read_bytes()
    for place in chance.sample(range(len(whole) * 8), min(60, len(whole) * 8)):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        copy = tmp_path / "copy"
        shutil.copytree(killed, copy)
        (copy / name).write_bytes(flipped)
        try:
            spool = opened(copy, adopt=True)
        except folder.SpoolDamagedError:
            told += 1
            assert name != WAL or (copy / DAMAGED_WAL).read_bytes() == flipped
        else:
            assert content(spool) == b"".join(FLAT)
            assert spool.meta.position == b"2"
            spool.close()
        shutil.rmtree(copy)
    if name == ACKNOWLEDGED or not whole:  # the other slot is sound, and so are the records
        assert told == 0
    elif name == WAL:
        assert told > 50
    else:
        assert bool(told) == checkpoint


@pytest.mark.parametrize("length", [0, 31, 33, 5000, 9000])
def test_a_log_shorter_than_what_was_acknowledged_is_reported_again_and_again(tmp_path, length):
    killed = after_a_kill(tmp_path, checkpoint=False)
    os.truncate(killed / WAL, length)
    for _ in range(2):
        with pytest.raises(folder.SpoolDamagedError, match=r"were acknowledged and are|tables"):
            opened(killed, adopt=True)


@pytest.mark.parametrize("name", [DATABASE, ACKNOWLEDGED])
def test_a_missing_file_is_reported(tmp_path, name):
    killed = after_a_kill(tmp_path, checkpoint=True)
    (killed / name).unlink()
    with pytest.raises(folder.SpoolDamagedError):
        opened(killed, adopt=True)


def test_a_bit_that_flips_while_the_spool_is_open_is_reported_by_the_read(spool):
    spool.append([b"a" * 100, b"b"])
    spool._connection.execute("UPDATE records SET content = replace(content, 'b', 'c')")
    with pytest.raises(folder.SpoolDamagedError, match="row of record 1"):
        spool.read(1, 10, 1 << 20)


def test_a_call_is_remembered_before_another_thread_can_read_its_records(spool):
    seen: list[tuple[int, int]] = []
    for records in ([b"a", b"b"], [b"c"]):
        spool.append(records, accepted=lambda first: seen.append((first, spool.next)))
    assert seen == [(1, 1), (3, 3)]


def test_missing_records_are_named(tmp_path, spool):
    for _ in range(3):
        spool.append([b"x", b"y"])
    spool._connection.execute("DELETE FROM records WHERE first = 3")
    with pytest.raises(folder.SpoolDamagedError, match="records 3 to 4 are missing"):
        spool.read(1, 10, 1 << 20)
    spool.close()
    with pytest.raises(folder.SpoolDamagedError, match="records 3 to 4 are missing"):
        opened(tmp_path / "spool")


def test_position_sequence_and_nonce_outlive_the_records_that_were_published(tmp_path, spool):
    spool.append([b"w"])
    spool.append([b"x", b"y"], b"line 2")
    spool.append([b"z"])
    nonce = spool.nonce_before(4)
    spool.delete_below(5)
    spool.close()
    spool = opened(tmp_path / "spool")
    assert (spool.first, spool.next) == (4, 5)
    assert spool.meta.position == b"line 2"
    assert spool.nonce_before(5) == nonce != b""
    assert spool.nonce_before(3) is None
    spool.close()


def test_rows_are_read_from_the_one_that_holds_a_record_and_within_bounds_of_a_transaction(spool):
    spool.append([b"%04d" % number for number in range(1, 1301)])
    spool.append([bytes(100_000), bytes(100_000), b"x"])
    rows = spool.read(600, 10_000, 1 << 30)
    assert [(row.first, row.records) for row in rows] == [
        (501, 500),
        (1001, 300),
        (1301, 1),
        (1302, 2),
    ]
    assert [row.first for row in spool.read(1, 700, 1 << 30)] == [1]
    assert [row.first for row in spool.read(1001, 700, 100_000)] == [1001, 1301]
    assert spool.read(1304, 700, 1) == []


def test_a_spool_of_another_process_is_refused_and_free_once_it_is_closed(tmp_path, spool):
    with pytest.raises(folder.SpoolOwnedError, match=f"pid {os.getpid()}"):
        opened(tmp_path / "spool")
    spool.close()
    opened(tmp_path / "spool").close()


def test_a_spool_that_is_closed_twice_closes_no_file_that_has_its_number_now(tmp_path, spool):
    spool.close()
    with (tmp_path / "other").open("w") as other:
        spool.close()
        other.write("whole")
    assert (tmp_path / "other").read_text() == "whole"


def test_a_copied_folder_is_refused_unless_it_is_adopted_and_one_of_another_app_always(tmp_path):
    killed = after_a_kill(tmp_path, checkpoint=False)
    with pytest.raises(folder.SpoolMovedError, match="was copied"):
        opened(killed)
    opened(killed, adopt=True).close()
    opened(killed).close()
    with pytest.raises(folder.SpoolMovedError, match="not of other"):
        SpoolStore(folder.Folder(killed), "other", disk_max_bytes=1 << 30)
    assert not (killed / DAMAGED_WAL).exists()  # a log that is damaged later would find it there


@pytest.mark.parametrize("name", ["spool.id", "00000000000000000001.log"])
def test_a_folder_of_an_earlier_format_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ConfigurationError, match="format of a build before"):
        opened(tmp_path)


def test_a_network_file_system_is_refused(tmp_path, monkeypatch):
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "20 1 0:5 / / rw - overlay overlay rw\n"
        f"21 1 {os.major(device)}:{os.minor(device)} / {tmp_path} rw shared:1 - nfs4 server:/ rw\n"
    )
    monkeypatch.setattr(folders, "_MOUNTS", mounts)
    with pytest.raises(ConfigurationError, match=r"network file system \(nfs4\)"):
        opened(tmp_path / "spool")


def test_a_spool_refuses_what_its_bound_has_no_room_for_and_takes_it_after_a_deletion(tmp_path):
    bound, chance = 1 << 20, Random(1)
    spool = opened(tmp_path / "spool", disk_max_bytes=bound)
    for _ in range(3):
        first = spool.next
        with pytest.raises(folder.SpoolFullError, match="1,048,576"):
            fill(spool, bound, chance)
        assert spool.next - first > 30
        spool.delete_below(spool.next)
        spool.append([bytes(bound // 4)])  # the largest call fits once all is published
        spool.delete_below(spool.next)
        assert spool.size_bytes <= bound
    spool.close()


def fill(spool: SpoolStore, bound: int, chance: Random) -> None:
    while spool.size_bytes <= bound:
        spool.append([bytes(chance.randrange(1, 20_000))])
        spool.checkpoint()


def test_a_disk_that_is_full_refuses_and_what_was_accepted_before_and_after_is_whole(spool):
    spool.append([b"a"])
    spool._connection.execute("PRAGMA max_page_count = 20")
    with pytest.raises(folder.SpoolFullError, match="disk of the spool is full"):
        spool.append([bytes(100_000)], b"lost")
    assert (spool.next, spool.meta.position) == (2, b"")
    spool.append([b"b"])
    spool._connection.execute("PRAGMA max_page_count = 1000000")
    spool.append([bytes(100_000)])
    assert content(spool) == b"ab" + bytes(100_000)


def test_a_disk_is_never_filled_to_its_end_so_that_records_can_be_deleted(spool, monkeypatch):
    spool.append([bytes(100_000)])
    with monkeypatch.context() as patch:
        patch.setattr(folder.Folder, "free_bytes", lambda _self: 300_000)
        with pytest.raises(folder.SpoolFullError, match="300,000 left"):
            spool.append([bytes(100_000)])
        spool.append([b"small"])
        spool.delete_below(3)
    assert (spool.first, spool.next) == (2, 3)


def test_a_sync_that_fails_ends_the_spool_until_it_is_opened_again(tmp_path, spool, monkeypatch):
    failing = Mock(side_effect=OSError(errno.EIO, "Input/output error"))
    spool.append([b"a"], b"1")
    with monkeypatch.context() as patch:
        patch.setattr(folder.Folder, "write", failing)
        with pytest.raises(folder.SpoolFailedError, match="Input/output error"):
            spool.append([b"b"], b"2")
    with pytest.raises(folder.SpoolFailedError):
        spool.append([b"c"], b"3")
    spool.close()
    spool = opened(tmp_path / "spool")
    assert (content(spool), spool.meta.position) == (b"ab", b"2")
    spool.close()


def test_the_file_shrinks_once_all_is_published(spool):
    for _ in range(80):
        spool.append([bytes(1 << 20)])
        spool.checkpoint()
    assert spool.size_bytes > 80 << 20
    spool.delete_below(spool.next)
    assert spool.size_bytes < 12 << 20


@pytest.mark.rounds
def test_a_process_killed_at_any_moment_leaves_what_it_has_acknowledged(tmp_path):
    times = rounds(60, 2000)
    words = [sys.executable, "-m", "tests.kit.killed_spool", str(tmp_path / "spool"), str(times)]
    assert f"{times} kills" in output_of(words, cwd=ROOT, timeout=500)
