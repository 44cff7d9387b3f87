"""The networks have the paper's sizes and take any images."""

import copy
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import CPU
from torch import Tensor, nn

from rankingmatch import RankingMatchClassifier
from rankingmatch.core.errors import ConfigError
from rankingmatch.networks import (
    Classifier,
    WideResNet,
    batched_outputs,
    channel_statistics,
    make_backbone,
    make_classifier,
    predict_logits,
    predict_logits_and_features,
    predict_probabilities,
    register_network,
    to_tensor,
)


def test_the_papers_networks_have_the_papers_sizes() -> None:
    sizes = {("wrn-28-2", 10): 1_467_610, ("wrn-28-2-large", 100): 26_025_459, ("wrn-37-2", 10): 5_929_434}
    for (name, classes), expected in sizes.items():
        assert sum(parameter.numel() for parameter in make_backbone(name, 3, classes).parameters()) == expected


@pytest.mark.parametrize(("depth", "width"), [(10, 1), (16, 4), (28, 2), (28, 10), (40, 2)])
def test_the_family_counts_its_layers(depth: int, width: int) -> None:
    network = make_backbone(f"wrn-{depth}-{width}", 3, 10)
    # The depth counts the convolutions and the shortcuts that change the width; where a width stays 16 there is none.
    assert sum(isinstance(m, nn.Conv2d) for m in network.modules()) == depth - (width == 1)
    assert [m.in_features for m in network.modules() if isinstance(m, nn.Linear)] == [64 * width]


@pytest.mark.parametrize("name", ["small", "wrn-28-2", "wrn-37-2"])
@pytest.mark.parametrize(("channels", "height", "width"), [(1, 8, 8), (3, 32, 32), (4, 5, 17), (2, 1, 1)])
def test_any_input_size_and_channel_count(name: str, channels: int, height: int, width: int) -> None:
    network = make_backbone(name, channels, 7)
    logits, features = network(torch.randn(2, channels, height, width))
    assert logits.shape == (2, 7)
    assert features.shape == (2, network.head.in_features)  # type: ignore[union-attr]
    torch.testing.assert_close(logits, network.head(features))  # type: ignore[operator]


def test_a_block_is_bn_activation_conv_twice_plus_shortcut_which_only_the_first_one_activates() -> None:
    network = make_backbone("wrn-28-2", 3, 10)
    assert isinstance(network, WideResNet)
    assert [block.activate_shortcut for block in network.blocks] == [True] + [False] * 11
    block: Any = network.blocks[4].eval()  # the first of the second group
    maps = torch.randn(2, 32, 8, 8)

    def activated(norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
        z = norm(x)
        return torch.where(z > 0, z, 0.1 * z)

    inner = block.conv1(activated(block.norm1, maps))
    expected = block.shortcut(maps) + block.conv2(activated(block.norm2, inner))
    torch.testing.assert_close(block(maps), expected)


def test_initial_weights_are_those_of_the_papers_networks() -> None:
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
        ("no.such.module:net", "cannot be imported"),
        ("own_network:missing", "cannot be imported"),
        ("own_network:of_one_number", "callable with \\(channels, classes\\)"),
        ("own_network:no_module", "returned a int"),
    ],
)
def test_an_unusable_network_is_named(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_backbone(name, 3, 10)


def test_a_registered_network_is_used_by_name_trained_saved_and_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def factory(channels: int, classes: int, pretrained: bool = False) -> nn.Module:
        head = nn.Linear(channels, classes)
        if pretrained:
            nn.init.constant_(head.weight, 0.5)
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)

    monkeypatch.setattr("rankingmatch.networks.build.NETWORKS", {})
    register_network("toy", factory)
    for name, message in (("toy", "already a network"), ("a:b", "a colon marks an import path")):
        with pytest.raises(ConfigError, match=message):
            register_network(name, factory)
    pretrained = make_classifier("toy", classes=4, channels=2, pretrained=True)
    assert (dict(pretrained.named_parameters())["backbone.2.weight"] == 0.5).all()
    images, labels = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3)).astype(np.uint8), np.arange(12) % 3
    classifier = RankingMatchClassifier("supervised", network="toy", steps=2, threads=1).fit(images, labels)
    classifier.save(tmp_path / "model.safetensors")
    loaded = RankingMatchClassifier.load(tmp_path / "model.safetensors")
    assert np.array_equal(loaded.predict_proba(images), classifier.predict_proba(images))


def test_a_classifier_has_the_channels_of_its_statistics() -> None:
    model = make_classifier("small", classes=7)
    assert (model.mean.flatten().tolist(), model.std.flatten().tolist()) == ([0.5] * 3, [0.25] * 3)
    model = make_classifier("small", 7, mean=[0.1, 0.2], std=torch.tensor([0.3, 0.4]))
    assert model.mean.flatten().tolist() == pytest.approx([0.1, 0.2])
    assert model(torch.zeros(2, 2, 8, 8, dtype=torch.uint8)).logits.shape == (2, 7)
    with pytest.raises(ConfigError, match=r"std .*\(1,\).* 3 channels"):
        make_classifier("small", 7, mean=[0.1, 0.2, 0.3], std=[0.4])


def test_the_classifier_normalizes_and_gives_logits_as_features_where_there_are_none() -> None:
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


def test_channel_statistics_are_mean_and_deviation_and_take_little_memory() -> None:
    images = np.random.default_rng(0).integers(0, 256, (50, 4, 4, 3)).astype(np.uint8)
    rows = np.arange(0, 50, 3)
    mean, std = channel_statistics(images, rows)
    assert mean.tolist() == pytest.approx((images[rows] / 255).mean((0, 1, 2)).tolist())
    assert std.tolist() == pytest.approx((images[rows] / 255).std((0, 1, 2)).tolist())
    images = np.zeros((2000, 64, 64, 3), np.uint8)
    tracemalloc.start()
    channel_statistics(images, np.arange(len(images)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < images.nbytes  # of photographs, eight bytes a value would not fit into memory


def test_predictions_are_the_outputs_of_all_images_in_evaluation_mode() -> None:
    images = np.random.default_rng(0).integers(0, 256, (11, 8, 8, 1)).astype(np.uint8)
    images.setflags(write=False)  # torch would warn of a read-only array, and a warning would be an error
    model = make_classifier("small", 3, channels=1).train()
    batches = list(batched_outputs(model, images, CPU, size=4))
    assert [len(batch.logits) for batch in batches] == [4, 4, 3]
    assert model.training
    whole = copy.deepcopy(model).eval()(to_tensor(images, CPU))
    expected = torch.cat([output.logits for output in batches])
    torch.testing.assert_close(expected, whole.logits, rtol=1e-4, atol=1e-5)
    logits, features = predict_logits_and_features(model, images, CPU, 4)
    assert np.array_equal(logits, expected.numpy())
    assert np.array_equal(predict_logits(model, images, CPU, 4), logits)
    assert features is not None
    assert np.array_equal(features, torch.cat([output.features for output in batches]).numpy())
    assert np.array_equal(predict_probabilities(model, images, CPU, 4), expected.softmax(1).numpy())
    double = predict_probabilities(model, images, CPU, 4, torch.float64)
    assert np.array_equal(double, expected.double().softmax(1).numpy())
    own = make_classifier("own_network:linear_network", 3, channels=1)
    assert predict_logits_and_features(own, images, CPU)[1] is None
