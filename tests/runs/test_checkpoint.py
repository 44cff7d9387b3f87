"""What is saved comes back whole or not at all."""

import json
import logging
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Literal

import pytest
import torch
from tiny import CPU, VIEW_SETTINGS, tiny_settings, tiny_split, tiny_state

from rankingmatch.core.atomic import write_atomically
from rankingmatch.core.errors import RunError
from rankingmatch.methods import make_method
from rankingmatch.networks import NetworkSettings
from rankingmatch.runs.checkpoint import restore_latest, save_checkpoint
from rankingmatch.runs.model import ModelInfo, load_model, save_model
from rankingmatch.training.loop import train
from rankingmatch.training.state import State, initial_state

CARD = ModelInfo("wrn-10-1", ("a", "b", "ç"), 1, 8, 8)


def checkpointed(directory: Path, steps: int = 5) -> State:
    """A state after some steps, with a checkpoint of each."""
    split, settings = tiny_split(), tiny_settings(steps=steps)
    state = tiny_state(split, settings)
    for _ in train(state, split, settings):
        save_checkpoint(directory, state)
    return state


def test_the_last_two_checkpoints_are_kept(tmp_path: Path) -> None:
    checkpointed(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"step-00000000{n}.{end}" for n in (4, 5) for end in ("json", "safetensors")]


@pytest.mark.parametrize(
    "damage", ["truncated", "flipped byte", "no tensors", "torn json", "json of another shape", "json null"]
)
def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpointed(tmp_path)
    tensors, about = tmp_path / "step-000000005.safetensors", tmp_path / "step-000000005.json"
    content = tensors.read_bytes()
    if damage == "truncated":
        tensors.write_bytes(content[: len(content) // 2])
    elif damage == "flipped byte":
        tensors.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    elif damage == "no tensors":
        tensors.unlink()
    elif damage == "torn json":
        about.write_text(about.read_text()[:20])
    elif damage == "json null":
        about.write_text("null")
    else:
        about.write_text(json.dumps({**json.loads(about.read_text()), "window_count": None, "more": 1}))
    fresh = tiny_state(tiny_split(), tiny_settings(steps=5))
    with caplog.at_level(logging.WARNING):
        assert restore_latest(tmp_path, fresh)
    assert fresh.step == 4
    assert "step-000000005 cannot be used" in caplog.text


def test_without_a_usable_checkpoint_the_state_is_as_new(tmp_path: Path) -> None:
    fresh = tiny_state(tiny_split(), tiny_settings())
    assert not restore_latest(tmp_path / "nowhere", fresh)
    assert fresh.step == 0


def test_a_checkpoint_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    checkpointed(tmp_path)
    settings = tiny_settings()
    other = initial_state(
        tiny_split(), make_method("supervised", {}), NetworkSettings("wrn-10-2"), VIEW_SETTINGS, settings, CPU
    )
    before = {key: value.clone() for key, value in other.objective.state_dict().items()}
    with pytest.raises(RunError, match=r"no checkpoint in .* can be used"):
        restore_latest(tmp_path, other)
    assert all(torch.equal(value, before[key]) for key, value in other.objective.state_dict().items())
    assert other.step == 0


def test_a_network_with_tied_weights_is_saved_and_restored(tmp_path: Path) -> None:
    split, settings = tiny_split(), tiny_settings(steps=2)
    network = NetworkSettings("own_network:tied_network")
    state, fresh = (
        initial_state(split, make_method("supervised", {}), network, VIEW_SETTINGS, settings, CPU) for _ in range(2)
    )
    list(train(state, split, settings))
    save_checkpoint(tmp_path, state)
    assert restore_latest(tmp_path, fresh)
    expected = state.objective.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in fresh.objective.state_dict().items())


def test_losses_keep_the_order_of_the_method(tmp_path: Path) -> None:
    split, settings = tiny_split(), tiny_settings(steps=6, log_every=3)
    state = tiny_state(split, settings)
    told = [list(record.metrics.losses) for record in train(state, split, settings) if record.metrics]
    state = tiny_state(split, settings)
    records = train(state, split, settings)
    next(records)
    save_checkpoint(tmp_path, state)
    restored = tiny_state(split, settings)
    restore_latest(tmp_path, restored)
    again = [list(record.metrics.losses) for record in train(restored, split, settings) if record.metrics]
    assert again == told
    assert told[0] != sorted(told[0])


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_restored_optimizer_takes_the_same_steps(optimizer: Literal["sgd", "adamw"], tmp_path: Path) -> None:
    split, settings = tiny_split(), replace(tiny_settings(steps=6), optimizer=optimizer)
    whole = tiny_state(split, settings)
    list(train(whole, split, settings))
    interrupted = tiny_state(split, settings)
    for _ in islice(train(interrupted, split, settings), 3):
        pass
    save_checkpoint(tmp_path, interrupted)
    resumed = tiny_state(split, settings)
    assert restore_latest(tmp_path, resumed)
    list(train(resumed, split, settings))
    for ours, theirs in zip(resumed.objective.parameters(), whole.objective.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full_disk(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_model_comes_back_with_its_card(tmp_path: Path) -> None:
    state = tiny_state(tiny_split(), tiny_settings())
    save_model(tmp_path / "model.safetensors", state.ema, CARD)
    model, card = load_model(tmp_path / "model.safetensors", CPU)
    assert card == CARD
    images = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
    assert torch.equal(model(images).logits, state.ema(images).logits)
