"""``python -m tests.mutations``: how much of what could go wrong in the code the tests notice.

  list            the mutations that are played; --write draws those anew that no longer exist
  show ID         one of them, as a difference
  reach           record which test reaches which line (once; needs ``coverage``)
  run             play what nothing has killed, in parts that add up: --minutes 10
  report          what became of them, by package

With ``--real`` the tests on real servers are recorded and played, on what the others let survive:
``reach TEST … --real`` adds the reach of some, those of admitted.tsv first, then ``run --real``.
"""

import argparse
import difflib
import os
import sys
import time

import pytest

from tests.mutations import chosen, played, reach, results
from tests.mutations.candidates import ROOT, Mutation

QUICK = ("tests/unit", "tests/contract")
PLAIN = (
    *("-q", "-W", "ignore::pytest.PytestAssertRewriteWarning"),  # reach is imported before
    *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "tests.mutations.reach"),
)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser("python -m tests.mutations")
    parser.add_argument("command", choices=("list", "show", "reach", "run", "report"))
    parser.add_argument("id", nargs="*", help="of mutations; for reach, files of tests")
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_intermixed_args(words)
    layer = "real" if options.real else "quick"
    match options.command:
        case "list":
            if options.write:
                chosen.write(chosen.filled_up(chosen.known()))
            sys.stdout.write(chosen.LIST.read_text())
        case "show":
            show(asked(options))
        case "reach":
            os.environ[reach.LAYER] = layer
            marks = ("-m", played.LAYERS[layer])
            return int(pytest.main([*PLAIN, *marks, *(options.id or QUICK)]))
        case "run":
            run(asked(options), layer, time.monotonic() + options.minutes * 60)
        case "report":
            sys.stdout.write(f"{results.tables()}\n")
    return 0


def show(mutations: list[Mutation]) -> None:
    for one in mutations:
        source = (ROOT / one.file).read_bytes()
        before, after = (
            text.decode().splitlines(keepends=True) for text in (source, one.apply(source))
        )
        sys.stdout.writelines(difflib.unified_diff(before, after, one.file, one.id, n=4))


def run(mutations: list[Mutation], layer: str, deadline: float) -> None:
    """Play what no test has noticed yet, first what was not played at all."""
    rows = results.rows()
    todo = [one for one in mutations if rows[one.id].outcome not in results.KILLED]
    todo.sort(key=lambda one: rows[one.id].outcome != "not played")
    with played.copy_of_the_tree() as tree:
        for one in todo:
            if time.monotonic() > deadline:
                break
            tests = reach.tests_of(one, layer)
            word, by = played.play(tree, one, tests, layer) if tests else ("unreached", "")
            row = rows[one.id]
            if layer == "quick" or tests:  # what real tests do not reach, others may have
                row = row._replace(outcome=word, layer=layer if tests else "", by=by)
                results.keep(row)
            place = f"{one.file.removeprefix('service/hapax/')}:{one.line}"
            print(word, one.id, place, one.kind, by, flush=True)  # noqa: T201


def asked(options: argparse.Namespace) -> list[Mutation]:
    known = chosen.known()
    if gone := len(chosen.listed()) - len(known):
        sys.stderr.write(f"{gone} of the list no longer exist: list --write draws others\n")
    return [one for one in known if not options.id or one.id in options.id]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
