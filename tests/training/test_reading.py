"""The images of a step are the same whether they are read ahead or not."""

from functools import partial

import pytest
import torch
from tiny import tiny_settings, tiny_split

from rankingmatch.methods import make_method
from rankingmatch.training.batches import StepImages, read_images, read_steps


def test_images_that_are_read_ahead_are_the_images_of_each_step() -> None:
    split, settings = tiny_split(), tiny_settings()
    read = partial(read_images, split, make_method("fixmatch-ra", {}), settings, False)
    for ahead in (False, True):
        steps = read_steps(read, 3, ahead)
        for step in range(3, 8):
            labeled, unlabeled = next(steps)
            expected = read(step)
            assert torch.equal(labeled, expected.labeled)
            assert unlabeled is not None
            assert expected.unlabeled is not None
            assert torch.equal(unlabeled, expected.unlabeled)


def test_a_failure_while_reading_ahead_is_raised_at_its_step() -> None:
    def read(step: int) -> StepImages:
        if step == 2:
            raise OSError("the disk is gone")
        return StepImages(torch.zeros(1), None)

    steps = read_steps(read, 0, ahead=True)
    assert next(steps).unlabeled is None
    next(steps)
    with pytest.raises(OSError, match="the disk is gone"):
        next(steps)
