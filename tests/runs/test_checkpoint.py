"""What is saved comes back whole or not at all."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import CPU, VIEW_SETTINGS, tiny_settings, tiny_split, tiny_state

from rankingmatch.core.atomic import write_atomically
from rankingmatch.core.errors import RunError
from rankingmatch.methods import make_method
from rankingmatch.networks import NetworkSettings
from rankingmatch.runs.checkpoint import restore_latest, save_checkpoint
from rankingmatch.training.loop import train
from rankingmatch.training.state import initial_state


def checkpointed(directory: Path) -> None:
    """Five steps, with a checkpoint of each."""
    split, settings = tiny_split(), tiny_settings(steps=5)
    state = tiny_state(split, settings)
    for _ in train(state, split, settings):
        save_checkpoint(directory, state)


@pytest.mark.parametrize(
    "damage", ["truncated", "flipped byte", "no tensors", "torn json", "json of another shape", "json null"]
)
def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpointed(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"step-00000000{n}.{end}" for n in (4, 5) for end in ("json", "safetensors")]
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


def test_a_resumed_training_takes_the_same_steps_of_adamw_and_its_losses_keep_their_order(tmp_path: Path) -> None:
    split, settings = tiny_split(), replace(tiny_settings(log_every=3), optimizer="adamw")
    whole, resumed = (tiny_state(split, settings) for _ in range(2))
    told, again = [], []
    for record in train(whole, split, settings):
        if record.step == 1:
            save_checkpoint(tmp_path, whole)
        told += [list(record.metrics.losses)] if record.metrics else []
    assert restore_latest(tmp_path, resumed)
    for record in train(resumed, split, settings):
        again += [list(record.metrics.losses)] if record.metrics else []
    assert again == told
    assert told[0] != sorted(told[0])
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
