from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hapax.testing import Pipeline


def test_a_click_leaves_with_its_page(hapax_pipeline: Pipeline) -> None:
    result = hapax_pipeline.run(b'{"id": "c-1", "url": "https://shop.example/pens?from=mail"}')
    assert result.values() == [b'{"id": "c-1", "page": "/pens"}']
