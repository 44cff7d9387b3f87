"""The networks have the paper's sizes and take any images."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rankingmatch.core.errors import ConfigError
from rankingmatch.networks import (
    Classifier,
    WideResNet,
    channel_statistics,
    make_backbone,
    outputs,
    set_batchnorm_momentum,
    to_tensor,
)


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(
    ("name", "classes", "expected"),
    [("wrn-28-2", 10, 1_467_610), ("wrn-28-2-large", 100, 26_025_459), ("wrn-37-2", 10, 5_929_434)],
)
def test_the_papers_networks_have_the_papers_sizes(name: str, classes: int, expected: int) -> None:
    assert parameters(make_backbone(name, 3, classes)) == expected


@pytest.mark.parametrize(("depth", "width"), [(10, 1), (16, 4), (28, 2), (28, 10), (40, 2)])
def test_the_family_counts_its_layers(depth: int, width: int) -> None:
    network = make_backbone(f"wrn-{depth}-{width}", 3, 10)
    layers = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    head = [m for m in network.modules() if isinstance(m, nn.Linear)]
    # The depth counts the convolutions and the shortcuts that change the width; where a width stays 16 there is none.
    expected = depth - (1 if width == 1 else 0)
    assert len(layers) == expected
    assert head[0].in_features == 64 * width


@pytest.mark.parametrize("name", ["small", "wrn-28-2", "wrn-37-2"])
@pytest.mark.parametrize(("channels", "height", "width"), [(1, 8, 8), (3, 32, 32), (4, 5, 17), (2, 1, 1)])
def test_any_input_size_and_channel_count(name: str, channels: int, height: int, width: int) -> None:
    network = make_backbone(name, channels, 7)
    logits, features = network(torch.randn(2, channels, height, width))
    assert logits.shape == (2, 7)
    assert features.shape == (2, network.head.in_features)  # type: ignore[union-attr]


def test_logits_are_the_head_of_the_features() -> None:
    network = make_backbone("small", 1, 5)
    logits, features = network(torch.randn(3, 1, 8, 8))
    torch.testing.assert_close(logits, network.head(features))  # type: ignore[operator]


def test_only_the_first_block_activates_its_shortcut() -> None:
    network = make_backbone("wrn-28-2", 3, 10)
    assert isinstance(network, WideResNet)
    flags = [block.activate_shortcut for block in network.blocks]
    assert flags == [True] + [False] * 11


def test_a_block_is_bn_activation_conv_twice_plus_shortcut() -> None:
    block = make_backbone("wrn-10-2", 3, 10).blocks[1].eval()  # type: ignore[index,union-attr]
    maps = torch.randn(2, 32, 8, 8)

    def activated(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
        z = norm(x)
        return torch.where(z > 0, z, 0.1 * z)

    inner = activated(block.norm1, maps)
    expected = block.shortcut(maps) + block.conv2(activated(block.norm2, block.conv1(inner)))
    torch.testing.assert_close(block(maps), expected)


def test_weights_start_as_the_paper_lineage_has_them() -> None:
    torch.manual_seed(0)
    network = make_backbone("wrn-28-10", 3, 10)
    convolution = network.blocks[3].conv2  # type: ignore[index,union-attr]
    assert convolution.weight.std().item() == pytest.approx((2 / (9 * 160)) ** 0.5, rel=0.02)
    assert convolution.bias is None
    assert network.head.bias.abs().sum() == 0  # type: ignore[operator, union-attr]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wrn-28-3x", "unknown network.*did you mean 'wrn-28-2'"),
        ("resnet", "unknown network 'resnet'"),
        ("wrn-27-2", "6n \\+ 4"),
        ("no.such.module:net", "cannot be imported"),
        ("own_network:missing", "cannot be imported"),
        ("own_network:of_one_number", "callable with \\(channels, classes\\)"),
        ("own_network:no_module", "returned a int"),
    ],
)
def test_an_unusable_network_is_named(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_backbone(name, 3, 10)


def test_a_users_network_is_found_by_import_path() -> None:
    network = make_backbone("own_network:linear_network", 3, 4)
    assert network(torch.zeros(2, 3, 8, 8)).shape == (2, 4)


def test_the_classifier_normalises_and_gives_logits_as_features_where_there_are_none() -> None:
    mean, std = torch.tensor([0.5, 0.25]), torch.tensor([0.1, 0.2])
    seen: list[Tensor] = []

    class Spy(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            seen.append(images)
            return images.mean((2, 3))

    images = torch.full((1, 2, 4, 4), 255, dtype=torch.uint8)
    output = Classifier(Spy(), mean, std)(images)
    assert seen[0][0, :, 0, 0].tolist() == pytest.approx([5.0, 3.75])
    assert output.features is output.logits


def test_channel_statistics_are_mean_and_deviation() -> None:
    images = np.random.default_rng(0).integers(0, 256, (50, 4, 4, 3)).astype(np.uint8)
    rows = np.arange(0, 50, 3)
    mean, std = channel_statistics(images, rows)
    assert mean.tolist() == pytest.approx((images[rows] / 255).mean((0, 1, 2)).tolist())
    assert std.tolist() == pytest.approx((images[rows] / 255).std((0, 1, 2)).tolist())


def test_outputs_go_through_all_images_in_evaluation_mode() -> None:
    images = np.random.default_rng(0).integers(0, 256, (11, 8, 8, 1)).astype(np.uint8)
    model = Classifier(make_backbone("small", 1, 3), torch.tensor([0.5]), torch.tensor([0.3])).train()
    pieces = [output.logits for output in outputs(model, images, torch.device("cpu"), size=4)]
    assert [len(piece) for piece in pieces] == [4, 4, 3]
    assert model.training
    with torch.no_grad():
        torch.testing.assert_close(
            torch.cat(pieces), model.eval()(to_tensor(images, torch.device("cpu"))).logits, rtol=1e-4, atol=1e-5
        )


def test_batchnorm_momentum_reaches_every_norm() -> None:
    network = make_backbone("small", 1, 3)
    set_batchnorm_momentum(network, 0.07)
    assert {m.momentum for m in network.modules() if isinstance(m, nn.BatchNorm2d)} == {0.07}


def test_read_only_images_become_tensors_without_a_word() -> None:
    images = np.zeros((2, 4, 4, 1), np.uint8)  # one channel: the transpose is contiguous already
    images.setflags(write=False)
    assert to_tensor(images, torch.device("cpu")).shape == (2, 1, 4, 4)  # a warning would be an error
