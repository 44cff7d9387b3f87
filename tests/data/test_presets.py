"""Settings by size and number alone."""

import pytest

from rankingmatch.data import suggested_settings
from rankingmatch.runs.config import assemble


@pytest.mark.parametrize("count", [1, 40, 1797, 3068, 4999, 5000, 20_000, 100_000, 10**8])
@pytest.mark.parametrize("side", [8, 32, 64, 224])
def test_every_size_and_number_of_images_gets_settings_of_the_right_type_and_range(side: int, count: int) -> None:
    config = assemble("digits", "rankingmatch-bm", suggested_settings(side, side, 3, count))
    assert config.training.steps is not None
    assert 1000 <= config.training.steps <= 100_000
