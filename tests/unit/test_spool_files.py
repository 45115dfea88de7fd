"""The files of a spool, byte by byte: where a process may die, and which bits may flip."""

from random import Random

import pytest

from hapax.spool.errors import SpoolDamagedError
from hapax.spool.frames import FRAMES_AT, packed
from hapax.spool.log import SpoolLog
from hapax.spool.recovery import recovered
from hapax.spool.segment import file_name
from tests.simulation.spool.disk import Inode, ModelDisk

SPOOL = bytes(range(16))
RECORDS = [[b"one", b"two"], [b"three"], [b"", b"five"]]
FLAT = [record for group in RECORDS for record in group]


def log(disk: ModelDisk, nonce: int = 1, *, fresh: bool = False) -> SpoolLog:
    return SpoolLog(disk, SPOOL, bytes([nonce] * 16), segment_bytes=1 << 20, fresh=fresh)


def disk_of(content: bytes, name: str = file_name(1)) -> ModelDisk:
    disk = ModelDisk(Random(1))
    inode = disk.shown[name] = disk.durable[name] = Inode()
    inode.shown, inode.durable = bytearray(content), bytearray(content)
    return disk


def accepted() -> bytes:
    """Return the file after all records were acknowledged."""
    disk = ModelDisk(Random(1))
    one = log(disk, fresh=True)
    for number, group in enumerate(RECORDS):
        one.append(group, b"%d" % number)
        one.sync()
        one.certify()
        one.sync()
    assert one.certified_next == len(FLAT) + 1
    return bytes(disk.shown[file_name(1)].shown)


def found(disk: ModelDisk) -> list[bytes]:
    one = log(disk, 2)
    return one.read(one.first, 100, 1 << 20).records


def test_a_process_that_dies_at_any_byte_of_a_write_leaves_what_was_acknowledged():
    whole = accepted()
    frame = packed(len(FLAT) + 1, [b"six", b"seven"], b"9")
    for cut in range(len(frame)):
        assert found(disk_of(whole + frame[:cut])) == FLAT
        assert found(disk_of(whole + frame[:cut] + bytes(len(frame) - cut + 9))) == FLAT
    assert found(disk_of(whole + frame)) == [*FLAT, b"six", b"seven"]


def test_a_file_that_is_shorter_than_what_was_acknowledged_is_told_at_every_length():
    whole = accepted()
    for length in range(len(whole)):
        disk = disk_of(whole[:length])
        with pytest.raises(SpoolDamagedError, match=r"0001\.log at byte \d+"):
            found(disk)
        assert disk.shown[file_name(1)].shown == whole[:length]


def test_each_flipped_bit_is_told_or_changes_nothing_and_none_is_passed_over():
    whole, told = accepted(), 0
    for place in range(len(whole) * 8):
        content = bytearray(whole)
        content[place // 8] ^= 1 << place % 8
        disk = disk_of(bytes(content))
        if place // 8 >= FRAMES_AT:
            with pytest.raises(SpoolDamagedError):
                found(disk)
            assert disk.shown[file_name(1)].shown == content
            told += 1
        else:  # a slot: the records are there and sound
            assert found(disk) == FLAT
    assert told == (len(whole) - FRAMES_AT) * 8


def test_a_bit_that_flips_while_the_spool_is_open_is_told_by_the_read():
    disk = ModelDisk(Random(1))
    one = log(disk, fresh=True)
    one.append([b"a", b"b"])
    one.sync()
    one.certify()
    one.sync()
    disk.shown[file_name(1)].shown[-1] ^= 1
    with pytest.raises(SpoolDamagedError):
        one.read(1, 10, 1 << 20)


def test_a_missing_segment_is_named_by_the_records_that_it_held():
    disk = ModelDisk(Random(1))
    for nonce in range(3):
        one = log(disk, nonce, fresh=not nonce)
        one.append([b"x", b"y"])
        one.sync()
        one.close()
    disk.unlink(file_name(3))
    with pytest.raises(SpoolDamagedError, match="records 3 to 4 are missing"):
        recovered(disk, SPOOL)


def test_position_and_sequence_outlive_the_segments_that_were_published():
    disk = ModelDisk(Random(1))
    one = log(disk, fresh=True)
    one.append([b"x", b"y"], b"line 2")
    one.sync()
    one = log(disk, 2)
    one.delete_below(3)
    assert disk.names() == [file_name(3)]
    one = log(disk, 3)
    assert (one.position, one.next, one.nonce_before(3)) == (b"line 2", 3, bytes([1] * 16))
