"""``python -m tests.mutations``: how much of what could go wrong in the code the tests notice.

  list            the mutations that are played; --write draws those anew that no longer exist
  show ID         one of them, as a difference
  reach           record which test reaches which line (once; needs ``coverage``)
  run             play what is not settled, in parts that add up: --minutes 10
  report          what became of them, by package; --write keeps it in results.tsv

With ``--real`` the tests on real servers are recorded and played, on what the others let survive:
``reach TEST … --real`` adds the reach of some, those of admitted.tsv first, then ``run --real``.
"""

import argparse
import difflib
import os
import sys
import time
from functools import partial

import pytest

from tests.mutations import chosen, copied, in_place, outcomes, tested
from tests.mutations.candidates import ROOT, Mutation
from tests.mutations.forked import NEW_PROCESS, Broken, Forked, Played
from tests.mutations.outcomes import Outcome, show
from tests.mutations.tested import Chosen

QUICK = ("tests/unit", "tests/contract")
PLAIN = (
    *("-q", "-W", "ignore::pytest.PytestAssertRewriteWarning"),  # reach is imported before
    *("-p", "no:cacheprovider", "-p", "no:xdist"),
)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m tests.mutations")
    parser.add_argument("command", choices=("list", "show", "reach", "run", "report"))
    parser.add_argument("id", nargs="*", help="of mutations; for reach, files of tests")
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_intermixed_args(words)
    commands = {"list": _list, "show": _show, "reach": _reach, "run": _run, "report": _report}
    return commands[options.command](options)


def _list(options: argparse.Namespace) -> int:
    if options.write:
        known = chosen.known()
        chosen.write(chosen.filled_up(known))
    print(chosen.LIST.read_text(), end="")  # noqa: T201
    return 0


def _show(options: argparse.Namespace) -> int:
    for one in _asked(options):
        source = (ROOT / one.file).read_bytes()
        before, after = (
            text.decode().splitlines(keepends=True) for text in (source, one.apply(source))
        )
        sys.stdout.writelines(difflib.unified_diff(before, after, one.file, one.id, n=4))
    return 0


def _reach(options: argparse.Namespace) -> int:
    layer = "real" if options.real else "quick"
    os.environ["MUTATIONS_REACH"] = layer
    files = options.id or QUICK
    plugin = ("-p", "tests.mutations.reach", "-m", copied.LAYERS[layer])
    return int(pytest.main([*PLAIN, *plugin, *files]))


def _run(options: argparse.Namespace) -> int:
    deadline = time.monotonic() + options.minutes * 60
    todo = _asked(options)
    if options.real:
        return _play_copies(_unsettled(todo, "real"), "real", deadline)
    found = {mutation.id: (mutation, tests) for mutation, tests in _unsettled(todo, "quick")}
    left = []

    def settle(name: str, played: Played) -> None:
        mutation, tests = found[name]
        if played.word == NEW_PROCESS or (played.word == "survived" and tests.processes):
            left.append((mutation, tests))
            return
        outcome = Outcome(name, "quick", played.word, played.by, len(tests.tests), played.seconds)
        outcomes.keep(outcome)
        show(mutation, outcome)

    broken = [
        Broken(mutation.id, partial(in_place.put, mutation), tests.tests, tests.cost_s)
        for mutation, tests in found.values()
    ]
    plain = (*PLAIN, "--timeout", "60", "-m", copied.LAYERS["quick"], *QUICK)
    code = pytest.main(list(plain), plugins=[Forked(broken, deadline, settle)])
    return int(code) or _play_copies(left, "quick", deadline)


def _play_copies(todo: list[tuple[Mutation, Chosen]], layer: str, deadline: float) -> int:
    with copied.copy_of_the_tree() as tree:
        for mutation, tests in todo:
            if time.monotonic() > deadline:
                break
            outcome = copied.play(tree, mutation, tests, layer)
            outcomes.keep(outcome)
            show(mutation, outcome)
    return 0


def _unsettled(todo: list[Mutation], layer: str) -> list[tuple[Mutation, Chosen]]:
    """Return what is to be played, with its tests; keep that no test reaches the others."""
    kept, reached = outcomes.kept(layer), tested.Reached(layer)
    killed = {row.id for row in outcomes.rows() if row.outcome in outcomes.KILLED}
    found = []
    for mutation in todo:
        past = kept.get(mutation.id)
        if outcomes.is_settled(past):
            continue
        if layer == "real" and mutation.id in killed:
            continue
        tests = reached.of(mutation)
        if tests.tests:
            found.append((mutation, tests))
        else:
            outcomes.keep(Outcome(mutation.id, layer, "unreached"))
    return sorted(found, key=lambda one: one[1].cost_s)


def _report(options: argparse.Namespace) -> int:
    if options.write:
        outcomes.write()
    print(outcomes.tables())  # noqa: T201
    return 0


def _asked(options: argparse.Namespace) -> list[Mutation]:
    known = chosen.known()
    if gone := len(chosen.listed()) - len(known):
        sys.stderr.write(f"{gone} of the list no longer exist: list --write draws others\n")
    return [one for one in known if not options.id or one.id in options.id]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
