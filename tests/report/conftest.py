"""t-SNE is slow and has tests of its own: in pages, it is replaced by the first two numbers of each vector."""

from collections.abc import Iterator

import pytest

from rankingmatch.report.sections import embedding


@pytest.fixture(scope="module", autouse=True)
def _fast_embedding() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedding, "embed", lambda vectors: vectors[:, :2])
        yield
