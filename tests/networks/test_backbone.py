"""Frozen BatchNorm layers keep their statistics; a head on normalized features has its equation and survives files."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import CPU
from torch import nn

from rankingmatch.core.errors import ConfigError
from rankingmatch.networks import (
    NormalizedLinear,
    freeze_batchnorm,
    make_backbone,
    make_classifier,
    normalize_head,
    set_batchnorm_momentum,
)
from rankingmatch.runs.model import ModelInfo, load_model, save_model

# --- BatchNorm -----------------------------------------------------------------------------------------------


class Scaled(nn.BatchNorm2d):
    """A BatchNorm layer of someone else."""

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(maps)


@pytest.mark.parametrize("changed", [lambda same: same, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_in_training_mode_the_outputs_are_those_of_evaluation(
    changed: Callable[[nn.Sequential], nn.Sequential],
) -> None:
    original = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), Scaled(4), nn.Flatten(), nn.BatchNorm1d(36))
    for buffer in original.buffers():
        if buffer.is_floating_point():
            buffer.copy_(torch.rand_like(buffer) + 0.5)
    images = torch.randn(6, 1, 5, 5) * 3 + 1
    expected = original.eval()(images)
    freeze_batchnorm(original)
    network = changed(original)
    freeze_batchnorm(network)  # a second time changes nothing
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network.train()
    assert network.training
    assert torch.equal(network(images), expected)
    torch.testing.assert_close(network.state_dict(), before, atol=0, rtol=0)
    with torch.no_grad():
        network.get_parameter("1.weight").fill_(7)
    assert (original is network) == bool((original.get_parameter("1.weight") == 7).any())  # a copy is independent


def test_the_state_dict_has_the_same_names_and_scale_and_shift_stay_trainable() -> None:
    network = make_backbone("small", 1, 3)
    names = list(network.state_dict())
    set_batchnorm_momentum(network, 0.07)
    assert {module.momentum for module in network.modules() if isinstance(module, nn.BatchNorm2d)} == {0.07}
    freeze_batchnorm(network)
    assert list(network.state_dict()) == names
    logits, _ = network.train()(torch.randn(4, 1, 8, 8))
    logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


# --- heads on normalized features ----------------------------------------------------------------------------


def test_the_equation() -> None:
    head = NormalizedLinear(4, 3).requires_grad_(False)
    center = torch.tensor([0.5, 0.0, -1.0, 2.0])
    head.center.copy_(center)
    features = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    for row, logits in zip(features, head(features), strict=True):
        length = sum(float(value) ** 2 for value in row - center) ** 0.5
        for weights, bias, logit in zip(head.weight, head.bias, logits, strict=True):
            assert float(logit) == pytest.approx(float(bias + weights @ (row - center) / length), abs=1e-5)


def test_a_linear_head_is_replaced_once_and_keeps_its_weights() -> None:
    model = make_classifier("wrn-10-1", 3)
    before = dict(model.named_parameters())
    head = normalize_head(model.backbone)
    assert normalize_head(model.backbone) is head
    assert head in list(model.modules())
    after = dict(model.named_parameters())
    assert list(after) == list(before)
    assert all(after[name] is before[name] for name in before)
    with pytest.raises(ConfigError, match="linear head") as error:
        normalize_head(nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten()))
    assert error.value.settings == ("initial_head",)


def test_a_model_with_such_a_head_is_loaded_and_weights_to_start_from_may_have_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, path = make_classifier("wrn-10-1", 3).eval(), tmp_path / "model.safetensors"
    normalize_head(model.backbone).center.fill_(0.3)
    save_model(path, model, ModelInfo("wrn-10-1", ("a", "b", "c"), 3, 16, 16))
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, 3, 16, 16)).astype(np.uint8))
    assert torch.equal(load_model(path, CPU)[0](images).logits, model(images).logits)
    ours, theirs = make_classifier("wrn-10-1", 3, weights=str(path)).state_dict(), model.state_dict()
    assert "initialized randomly" in caplog.text
    same = {name for name, value in ours.items() if torch.equal(value, theirs[name])}
    assert len(ours.keys() - same) == 1  # the weight of the head; its bias starts at zero both times
