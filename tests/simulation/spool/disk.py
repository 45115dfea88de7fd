"""A disk that can lose its power: what was not synced is dropped, reordered, torn.

Each write is a change that waits. A sync makes those of its file durable, one of the folder those
of names. A power loss keeps any part of what waits: of a write any of its sectors, of names any.
A sector is written whole or not at all. A sync that fails keeps any part as well, and the system
then shows bytes that are not on the disk and will not be written (as Linux does).
"""

import errno
from random import Random

SECTOR = 512


class PowerLossError(BaseException):
    """The machine stops here."""


class Inode:
    """A file: as it is shown, as it is on the disk, and what waits between the two."""

    def __init__(self) -> None:
        self.shown = bytearray()
        self.durable = bytearray()
        self.waiting: list[tuple[int, bytes | None]] = []  # place and bytes; None: cut there

    def keep_some(self, chance: Random, share: float) -> None:
        """Make any part of what waits durable."""
        for at, data in self.waiting:
            if data is None:
                if chance.random() < share:
                    del self.durable[at:]
                continue
            end = at + len(data)
            for sector in range(at // SECTOR, (end - 1) // SECTOR + 1):
                here, until = max(at, sector * SECTOR), min(end, (sector + 1) * SECTOR)
                if chance.random() < share:
                    put(self.durable, here, data[here - at : until - at])
            if chance.random() < share:  # the length alone, without what was written
                put(self.durable, min(end, len(self.durable)), b"")
                self.durable.extend(bytes(max(0, end - len(self.durable))))
        self.waiting.clear()


def put(content: bytearray, at: int, data: bytes) -> None:
    """Write into a file that may be shorter."""
    content.extend(bytes(max(0, at - len(content))))
    content[at : at + len(data)] = data


class ModelFile:
    """As hapax.spool.disk.SpoolFile."""

    def __init__(self, disk: "ModelDisk", inode: Inode) -> None:
        self._disk = disk
        self.inode = inode

    def size(self) -> int:
        return len(self.inode.shown)

    def read(self, at: int, count: int) -> bytes:
        return bytes(self.inode.shown[at : at + count])

    def write(self, at: int, data: bytes) -> None:
        fault = self._disk.step(at + len(data) > len(self.inode.shown))
        if fault:
            data = data[: self._disk.chance.randrange(len(data) + 1)]
        put(self.inode.shown, at, data)
        self.inode.waiting.append((at, data))
        if fault:
            raise fault

    def truncate(self, size: int) -> None:
        self._disk.step()
        del self.inode.shown[size:]
        self.inode.waiting.append((size, None))

    def sync(self) -> None:
        self._disk.step()
        if self._disk.sync_fails():
            self.inode.keep_some(self._disk.chance, 0.5)
            raise OSError(errno.EIO, "the disk has an error")
        self.inode.keep_some(self._disk.chance, 1.1)
        assert self.inode.durable == self.inode.shown or self._disk.deceived

    def close(self) -> None:
        return


class ModelDisk:
    """As hapax.spool.disk.Disk, with faults that a schedule chooses."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.shown: dict[str, Inode] = {}
        self.durable: dict[str, Inode] = {}
        self.waiting: list[tuple[str, str]] = []
        self._inodes: dict[str, list[Inode]] = {}
        self._changes: list[tuple[str, Inode | None, str]] = []
        self.fuse = -1
        """Calls until the power is lost; below 0: never."""
        self.full = 0.0
        self.failing = 0.0
        self.deceived = False

    def step(self, grows: bool = False) -> OSError | None:  # noqa: FBT001, FBT002 - one flag
        """Count a call; lose power when its time has come."""
        self.fuse -= 1
        if self.fuse == 0:
            raise PowerLossError
        if grows and self.chance.random() < self.full:
            return OSError(errno.ENOSPC, "no space left")
        return None

    def sync_fails(self) -> bool:
        failing = self.chance.random() < self.failing
        self.deceived = self.deceived or failing
        return failing

    def names(self) -> list[str]:
        return sorted(self.shown)

    def open(self, name: str) -> ModelFile:
        return ModelFile(self, self.shown[name])

    def create(self, name: str) -> ModelFile:
        self.step()
        inode = self.shown[name] = Inode()
        self._changes.append((name, inode, ""))
        return ModelFile(self, inode)

    def rename(self, old: str, new: str) -> None:
        self.step()
        inode = self.shown[new] = self.shown.pop(old)
        self._changes.append((new, inode, old))

    def unlink(self, name: str) -> None:
        self.step()
        del self.shown[name]
        self._changes.append((name, None, ""))

    def sync(self) -> None:
        self.step()
        self._keep_names(1.1)

    def _keep_names(self, share: float) -> None:
        for name, inode, former in self._changes:
            if self.chance.random() >= share:
                continue
            if inode is None:
                self.durable.pop(name, None)
            else:
                self.durable[name] = inode
                self.durable.pop(former, None)
        self._changes.clear()

    def after_loss(self) -> "ModelDisk":
        """Return the disk as it is when the power is back."""
        share = self.chance.choice([0.0, 0.1, 0.5, 0.9, 1.1])
        self._keep_names(share)
        disk = ModelDisk(self.chance)
        for name, inode in self.durable.items():
            inode.keep_some(self.chance, share)
            inode.shown = bytearray(inode.durable)
            disk.shown[name] = disk.durable[name] = inode
        return disk

    def after_kill(self) -> "ModelDisk":
        """Return the disk as the next process finds it when only the process has died."""
        self.fuse, self.full, self.failing = -1, 0.0, 0.0
        return self

    def flip(self) -> str:
        """Flip a bit somewhere; return where."""
        name = self.chance.choice(sorted(self.shown))
        inode = self.shown[name]
        if not inode.shown:
            return ""
        at, bit = self.chance.randrange(len(inode.shown)), self.chance.randrange(8)
        self.deceived = True  # what waits to be written still has the bit as it was
        for content in (inode.shown, inode.durable):
            if at < len(content):
                content[at] ^= 1 << bit
        return f"{name} byte {at} bit {bit}"
