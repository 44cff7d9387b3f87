"""The rotated images of CR-Match."""

import pytest
import torch

from rankingmatch.methods.crmatch import rotations


@pytest.mark.parametrize(("width", "expected"), [(3, [0, 1, 2, 3]), (2, [0, 2])])
def test_images_are_rotated_by_all_quarter_turns_that_keep_their_shape(width: int, expected: list[int]) -> None:
    images = torch.arange(2 * 3 * width, dtype=torch.uint8).view(2, 1, 3, width)
    rotated, turns = rotations(images)
    assert turns.tolist() == [turn for turn in expected for _ in range(2)]
    for number, (image, turn) in enumerate(zip(rotated, turns.tolist(), strict=True)):
        assert torch.equal(image, torch.rot90(images[number % 2], turn, (1, 2)))
