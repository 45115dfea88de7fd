"""Records whose schema was not to be had in step 4: the batch ends before the first of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.errors import PreflightError, SchemasUnavailableError
from hapax.core.transform import Undecided

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.core.ports import Batch
    from hapax.core.transform import Result


def decided(
    batch: Batch,
    results: list[Result | None],
    *,
    keep: Callable[[Batch, list[Result | None]], object],
) -> list[Result | None]:
    """Return the results before the first record that waits for a schema.

    Where that is the first of all, raise SchemasUnavailableError for its partition, or
    PreflightError where no waiting helps. ``keep`` is given what has been called after it, which
    is not called again.
    """
    for index, result in enumerate(results):
        if isinstance(result, Undecided):
            keep(batch, results)
            if index:
                return results[:index]
            if result.refused:
                raise PreflightError([result.reason])
            error = SchemasUnavailableError(result.reason, key=result.key)
            error.where = batch.coordinates(0)[:2]
            raise error
    return results
