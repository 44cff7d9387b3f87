"""float16: a scaled loss, steps that overflow, and the scale in a checkpoint."""

from dataclasses import replace
from pathlib import Path

import torch
from tiny import CPU, VIEWS, tiny_settings, tiny_split, tiny_state

from rankingmatch.runs.checkpoint import restore_latest, save_checkpoint
from rankingmatch.training.batches import make_batch
from rankingmatch.training.loop import train, training_step


def test_float16_scales_the_loss_and_learns_almost_the_same() -> None:
    split, settings = tiny_split(), tiny_settings(steps=4)
    weights = {}
    for precision in ("float32", "float16"):
        chosen = replace(settings, precision=precision)
        state = tiny_state(split, chosen)
        assert state.scaler.is_enabled() == (precision == "float16")
        if precision == "float16":  # a scale at which no step overflows
            state.scaler.load_state_dict({**state.scaler.state_dict(), "scale": 2.0**8})
        before = state.model.state_dict()["backbone.head.weight"].clone()
        list(train(state, split, chosen))
        weights[precision] = state.model.state_dict()["backbone.head.weight"] - before
    difference = (weights["float16"] - weights["float32"]).norm() / weights["float32"].norm()
    assert 0 < difference < 0.05


def test_a_step_that_overflows_float16_is_skipped_and_the_next_ones_have_a_smaller_scale() -> None:
    split, settings = tiny_split(), replace(tiny_settings(), precision="float16")
    state = tiny_state(split, settings)
    state.scaler.load_state_dict({**state.scaler.state_dict(), "scale": 2.0**40})
    before = {name: value.clone() for name, value in state.model.named_parameters()}
    batch, _ = make_batch(split, state.objective.method, VIEWS, settings, 0, CPU)
    training_step(state, batch, settings)
    assert state.scaler.get_scale() == 2.0**39
    assert all(torch.equal(value, before[name]) for name, value in state.model.named_parameters())
    for _ in range(30):
        training_step(state, batch, settings)
    assert state.scaler.get_scale() < 2.0**30
    assert not torch.equal(state.model.state_dict()["backbone.head.weight"], before["backbone.head.weight"])


def test_the_scale_of_float16_is_part_of_a_checkpoint(tmp_path: Path) -> None:
    split, settings = tiny_split(), replace(tiny_settings(steps=6), precision="float16")
    whole = tiny_state(split, settings)
    whole.scaler.load_state_dict({**whole.scaler.state_dict(), "scale": 2.0**35, "growth_interval": 2})
    for record in train(whole, split, settings):
        if record.step == 3:
            save_checkpoint(tmp_path, whole)
            saved = whole.scaler.state_dict()
    resumed = tiny_state(split, settings)
    resumed.scaler.load_state_dict({**resumed.scaler.state_dict(), "growth_interval": 2})
    assert restore_latest(tmp_path, resumed)
    assert resumed.scaler.state_dict() == saved
    assert saved["scale"] < 2.0**35
    list(train(resumed, split, settings))
    assert resumed.scaler.state_dict() == whole.scaler.state_dict()
    for name, value in whole.objective.state_dict().items():
        assert torch.equal(resumed.objective.state_dict()[name], value), name
