"""The teacher of Mean Teacher sees its batch as the student does, and learns nothing from it."""

import torch
from tiny import CPU, VIEWS, tiny_settings, tiny_split, tiny_state
from torch import nn

from rankingmatch.methods import Context
from rankingmatch.training.batches import make_batch


def test_running_statistics_neither_matter_to_the_teacher_nor_change() -> None:
    split, settings = tiny_split(), tiny_settings()
    differences = []
    for shift in (0.0, 100.0):
        state = tiny_state(split, settings, "mean-teacher")
        for module in state.ema.modules():
            if isinstance(module, nn.BatchNorm2d):
                assert module.running_mean is not None
                module.running_mean += shift
        before = {name: value.clone() for name, value in state.ema.state_dict().items()}
        batch, _ = make_batch(split, state.objective.method, VIEWS, settings, 0, CPU)
        losses = state.objective(batch, Context(1, 2, state.ema, torch.Generator()))
        differences.append(losses.parts["difference"].item())
        assert all(torch.equal(value, before[name]) for name, value in state.ema.state_dict().items())
        assert not state.ema.training
    assert differences[0] == differences[1] > 0
