"""Frozen BatchNorm layers keep their statistics, whatever happens to the network."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import nn

from rankingmatch.networks import freeze_batchnorm, make_backbone


class Scaled(nn.BatchNorm2d):
    """A BatchNorm layer of someone else."""

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(maps)


def frozen_network() -> nn.Module:
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), Scaled(4), nn.Flatten(), nn.BatchNorm1d(36))
    for buffer in network.buffers():
        if buffer.is_floating_point():
            buffer.copy_(torch.rand_like(buffer) + 0.5)
    freeze_batchnorm(network)
    return network


def same(network: nn.Module) -> nn.Module:
    return network


def pickled(network: nn.Module) -> nn.Module:
    copied: nn.Module = pickle.loads(pickle.dumps(network))
    return copied


def frozen_twice(network: nn.Module) -> nn.Module:
    freeze_batchnorm(network)
    return network


@pytest.mark.parametrize("changed", [same, copy.deepcopy, pickled, frozen_twice])
def test_in_training_mode_the_outputs_are_those_of_evaluation(changed: Callable[[nn.Module], nn.Module]) -> None:
    network = changed(frozen_network())
    before = {name: value.clone() for name, value in network.state_dict().items()}
    images = torch.randn(6, 1, 5, 5) * 3 + 1
    expected = network.eval()(images)
    network.train()
    assert network.training
    assert torch.equal(network(images), expected)
    assert not any(network[index].training for index in (1, 2, 4))  # type: ignore[index]
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_without_freezing_the_outputs_differ() -> None:
    network = make_backbone("small", 1, 3)
    images = torch.randn(6, 1, 8, 8)
    assert not torch.allclose(network.train()(images)[0], network.eval()(images)[0])


def test_a_copy_is_independent_of_its_original() -> None:
    network = frozen_network()
    copied = copy.deepcopy(network)
    with torch.no_grad():
        copied[1].weight.fill_(7)  # type: ignore[index]
    assert not (network[1].weight == 7).any()  # type: ignore[index]


def test_a_subclass_keeps_its_own_forward() -> None:
    layer = Scaled(4).eval()
    images = torch.randn(2, 4, 3, 3)
    expected = layer(images)
    freeze_batchnorm(layer)
    assert isinstance(layer, Scaled)
    assert torch.equal(layer.train()(images), expected)


def test_the_state_dict_has_the_same_names_and_scale_and_shift_stay_trainable() -> None:
    network = make_backbone("small", 1, 3)
    names = list(network.state_dict())
    freeze_batchnorm(network)
    assert list(network.state_dict()) == names
    logits, _ = network.train()(torch.randn(4, 1, 8, 8))
    logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
