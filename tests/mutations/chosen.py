"""Which mutations are played: a list that is kept, drawn by a seed, more where more code is."""

import ast
import random
from collections.abc import Iterable
from pathlib import Path

from tests.mutations.candidates import ROOT, Mutation, is_valid, mutations

PACKAGES = ("core", "processing", "cluster", "kafka/produce", "kafka/consume", "claims", "engines")
LIST = Path(__file__).with_name("list.tsv")
COUNT = 180
SEED = 26
SHOWN = 60
"""Characters of a line that the list shows."""


def package(file: str) -> str:
    inside = file.removeprefix("service/hapax/")
    return next(name for name in PACKAGES if inside.startswith(f"{name}/"))


def modules() -> list[Path]:
    service = ROOT / "service/hapax"
    return [file for name in PACKAGES for file in sorted((service / name).rglob("*.py"))]


def draw() -> list[Mutation]:
    """Choose COUNT: files by their statements, places at random, kinds by turn."""
    weights = {
        file: sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(file.read_text())))
        for file in modules()
    }
    shares = _shares(weights)
    chosen = []
    for file, share in shares.items():
        chosen += _of_file(mutations(file), share, random.Random(f"{SEED} {file.name}"))
    return chosen


def filled_up(kept: list[Mutation]) -> list[Mutation]:
    """Return what is kept and as many others as are missing."""
    ids = {one.id for one in kept}
    more = [one for one in draw() if one.id not in ids]
    every = kept + more[: COUNT - len(kept)]
    return sorted(every, key=lambda one: (PACKAGES.index(package(one.file)), one.file, one.begin))


def known() -> list[Mutation]:
    every = {one.id: one for file in modules() for one in mutations(file)}
    return [every[key] for key in listed() if key in every]


def listed() -> list[str]:
    lines = LIST.read_text().splitlines() if LIST.exists() else []
    return [line.split("\t")[0] for line in lines[1:]]


def write(chosen: Iterable[Mutation]) -> None:
    lines = [row(one) for one in chosen]
    LIST.write_text("\n".join(["id\tplace\tkind\tbefore\tafter", *lines, ""]))


def row(one: Mutation) -> str:
    place = f"{one.file.removeprefix('service/hapax/')}:{one.line}"
    return "\t".join((one.id, place, one.kind, _short(one.before), _short(one.after)))


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= SHOWN else f"{flat[: SHOWN - 1]}…"


def _shares(weights: dict[Path, int]) -> dict[Path, int]:
    """Divide by weight; the largest remainders take what is left over."""
    whole = sum(weights.values())
    exact = {file: weight * COUNT / whole for file, weight in weights.items()}
    shares = {file: int(share) for file, share in exact.items()}
    rest = sorted(exact, key=lambda file: shares[file] - exact[file])
    for file in rest[: COUNT - sum(shares.values())]:
        shares[file] += 1
    return shares


def _of_file(every: list[Mutation], share: int, chance: random.Random) -> list[Mutation]:
    kinds: dict[str, list[Mutation]] = {}
    for one in every:
        kinds.setdefault(one.kind, []).append(one)
    chosen: dict[int, Mutation] = {}
    while len(chosen) < share and kinds:
        kind = chance.choice(sorted(kinds))
        one = kinds[kind].pop(chance.randrange(len(kinds[kind])))
        if not kinds[kind]:
            del kinds[kind]
        if is_valid(one.apply((ROOT / one.file).read_bytes())):
            chosen.setdefault(one.line, one)
    return sorted(chosen.values(), key=lambda one: one.begin)
