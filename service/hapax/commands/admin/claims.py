"""``hapax claims``: who owns an id, and what to do when the claim store knows it wrongly or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hapax.commands import screen

if TYPE_CHECKING:
    from hapax.core.ports import Owned
    from hapax.operations.claims import Adoption
    from hapax.settings import Settings

EventId = Annotated[
    str, typer.Argument(metavar="ID", help=r"The event's id; \x00 stands for a NUL byte.")
]

app = typer.Typer(
    name="claims", help="Show, forget, rebuild and adopt claims.", no_args_is_help=True
)


@app.command()
def show(event_id: EventId, as_json: screen.JsonFlag = False) -> None:
    r"""Show who owns an id: the record seen first, and how long that is remembered.

    An id counts within its source, so there may be several. The id of a
    CloudEvent is its source, a NUL byte (written \x00) and its id.
    Exit code 1: no claim exists.

    Examples:
      hapax claims show order-815
      hapax claims show 'https://shop.example/orders\x00815' --json
    """
    with screen.refusals(as_json=as_json):
        wanted = screen.typed_id(event_id)
        settings = screen.environment_settings()
        from hapax.operations.claims import claims

        with claims(settings) as asked:
            owners = asked.owners(wanted, event_id)
    _print_owners(event_id, owners, as_json=as_json)
    if not as_json:
        ttl = screen.age_text(settings.dedup.ttl_ms / 1000)
        typer.echo(
            f"An id is remembered for one to one and a half HAPAX_DEDUP__TTL ({ttl}): the ids of"
            " half of that time are forgotten together."
        )


@app.command()
def forget(
    event_id: EventId, yes: screen.YesFlag = False, as_json: screen.JsonFlag = False
) -> None:
    r"""Forget an id: the next record that has it is processed as if it were the first.

    The event will have its effect again if it is sent again, and nothing else
    happens. Exit code 1: no claim exists.

    Examples:
      hapax claims forget order-815
      hapax claims forget order-815 --yes --json
    """
    with screen.refusals(as_json=as_json):
        wanted = screen.typed_id(event_id)
        settings = screen.environment_settings()
        from hapax.operations.claims import claims

        with claims(settings) as asked:
            owners = asked.owners(wanted, event_id)
            told = ", ".join(str(owned.owner) for owned in owners.values())
            screen.confirm(f"Forget that {event_id} belongs to {told}?", yes=yes)
            forgotten = {kind: one for kind, one in owners.items() if asked.forget(wanted, kind)}
    _print_owners(event_id, forgotten, as_json=as_json)


@app.command()
def rebuild(
    since: screen.Since = None,
    output_topic: screen.OutputTopics = None,
    yes: screen.YesFlag = False,
    as_json: screen.JsonFlag = False,
) -> None:
    """Restore claims after Redis was lost, from outputs and dead letters.

    Reads their headers hapax-id and hapax-source, younger than --since (default:
    HAPAX_DEDUP__TTL), by the records' own timestamps. Existing claims stay. The command may be
    repeated, and run while workers run; if no duplicate may pass meanwhile, stop them first. It
    cannot know ids of records that were filtered: those have no outputs.

    Examples:
      hapax claims rebuild
      hapax claims rebuild --since 6h --output-topic orders-eu --yes
    """
    with screen.refusals(as_json=as_json) as line:
        settings = screen.one_cluster_settings()
        since_ms = None if since is None else screen.point_ms("--since", since)
        from hapax.operations.claims import claims

        with claims(settings) as asked:
            screen.confirm(f"Write claims of {settings.app} to its claim store?", yes=yes)
            rebuilt = asked.rebuild(since_ms, tuple(output_topic or ()), line.show)
    if as_json:
        import msgspec

        screen.print_json(msgspec.to_builtins(rebuilt))
        return
    lines = (
        (rebuilt.records, "outputs and dead letters read"),
        (rebuilt.claimed, "of them name an owner that has its claim now"),
        (rebuilt.elsewhere, "name an id that another record owns; that claim stays"),
        (rebuilt.untold, "have an id that more than one source may have given; not claimed"),
        (rebuilt.without_id, "are of records without an id"),
        (rebuilt.foreign, "were not written by a record of this pipeline"),
        (rebuilt.older, "more are older than the bound; left alone"),
    )
    for count, text in lines:
        if count or text.startswith(("of them", "outputs")):
            typer.echo(f"{count:,} {text}")
    typer.echo("Ids of records that were filtered are not known: they have no outputs.")


@app.command()
def adopt(
    dry_run: screen.DryRun = False, yes: screen.YesFlag = False, as_json: screen.JsonFlag = False
) -> None:
    """Let claims and offsets of another Kafka cluster belong to the one that answers now.

    For a cluster that takes over from another one (a mirror, a failover): the
    service refuses to start there, because the same coordinates are other
    records. After it a claim counts whose owner lies below the committed offset
    of this cluster, or is found at its place here with the same id; any other is
    taken over by the next record with its id. Committed offsets keep their
    numbers: check them first (hapax offsets). Refused while the group has
    members. Processes that still run on the other cluster leave with exit code 6.

    Examples:
      hapax claims adopt --dry-run
      hapax claims adopt --yes --json
    """
    with screen.refusals(as_json=as_json):
        settings = screen.environment_settings()
        from hapax.operations.claims import Adopting

        asked = Adopting(settings)
        found = asked.look()
        if not dry_run:
            screen.confirm(_adoption(settings, found), yes=yes)
            found = asked.adopt()
    if as_json:
        screen.print_json(
            {
                "adopted": not dry_run,
                **screen.fields(found, "before", "claims", cluster="here"),
                "offsets": [
                    {"topic": topic, "partition": number, "offset": offset}
                    for (topic, number), offset in sorted(found.offsets.items())
                ],
            }
        )
    elif dry_run:
        screen.say(f"{_adoption(settings, found)} Nothing was done.")
    else:
        what = f"claims and offsets of {settings.app}" if found.claims else "offsets"
        screen.say(
            f"{what} belong to cluster {found.here} now; offsets committed again:"
            f" {len(found.offsets)}"
        )


def _adoption(settings: Settings, found: Adoption) -> str:
    of = f"those of cluster {found.before}" if found.before else "no known cluster's"
    claims = f"claims ({of}) and " if found.claims else ""
    return f"Adopt {claims}offsets of {settings.app} for cluster {found.here}?"


def _print_owners(event_id: str, owners: dict[str, Owned], *, as_json: bool) -> None:
    if as_json:
        screen.print_json(
            {
                "id": screen.json_bytes(screen.id_bytes(event_id)),
                "claims": [
                    {"id_source": source, "owner": str(owned.owner), "life_ms": owned.life_ms}
                    for source, owned in owners.items()
                ],
            }
        )
        return
    columns: screen.Columns[tuple[str, Owned]] = {
        "id": lambda _: event_id,
        "found by": lambda one: one[0],
        "owner": lambda one: str(one[1].owner),
        "remembered for": lambda one: screen.age_text(one[1].life_ms / 1000),
    }
    screen.show(owners.items(), columns)
