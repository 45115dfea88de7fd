"""Composition of ``hapax claims adopt``: claims and offsets move to the present cluster."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import PreflightError
from hapax.kafka.admin.adoption import cluster_id, recommit_here
from hapax.kafka.admin.group import members
from hapax.wiring.claims import claim_store

if TYPE_CHECKING:
    from hapax.core.claim_store import ClaimStore
    from hapax.core.records import Progress
    from hapax.settings import Settings


class Adoption(msgspec.Struct, kw_only=True):
    """What moves to which cluster.

    here     Kafka's id of the cluster that answers
    before   the id that the claims had; None: none was written, or there is no claim store
    claims   whether there is a claim store
    offsets  of the group, committed again with the ids of this cluster beside them
    """

    here: str
    before: str | None
    claims: bool
    offsets: Progress = {}


class Adopting:
    """Looks first, then adopts. Raises PreflightError while the group has members."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._here = cluster_id(settings)

    def look(self) -> Adoption:
        """Return what would be adopted; change nothing."""
        self._refuse_members()
        store = self._store()
        if store is None:
            return Adoption(here=self._here, before=None, claims=False)
        with closing(store):
            return Adoption(here=self._here, before=store.cluster(), claims=True)

    def adopt(self) -> Adoption:
        """Adopt the offsets, then the claims; may be repeated when it was cut off in between."""
        found = self.look()
        found.offsets = recommit_here(self._settings)
        store = self._store()
        if store is not None:
            with closing(store):
                store.adopt()
        return found

    def _store(self) -> ClaimStore | None:
        return claim_store(self._settings, cluster_id=self._here)

    def _refuse_members(self) -> None:
        app, live = self._settings.app, members(self._settings)
        if live is None:
            raise PreflightError([f"the coordinator of group {app} does not answer: try again"])
        if live:
            problem = (
                f"group {app} has members ({', '.join(sorted(live))}): stop every process of"
                f" HAPAX_APP={app}, wait until HAPAX_GROUP__SESSION_TIMEOUT has passed, and try "
                f"again"
            )
            raise PreflightError([problem])
