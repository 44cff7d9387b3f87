"""`timm:NAME` with models of timm; test_pretrained.py has what needs pretrained weights, on a substitute."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from real_images import photographs
from real_timm import import_timm
from torch import Tensor

from rankingmatch import RankingMatchClassifier
from rankingmatch.core.errors import ConfigError
from rankingmatch.networks import head_parameters, input_side, make_backbone, make_classifier
from rankingmatch.networks.classifier import TimmBackbone
from rankingmatch.runs.export import export

MEAN, STD = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.3, 0.2, 0.1])
RESNET, VIT, LITE = "timm:resnet18", "timm:vit_tiny_patch16_224", "timm:tf_efficientnet_lite0"
MODELS = [(RESNET, 512, "fc"), (VIT, 192, "head"), (LITE, 1280, "classifier")]


@pytest.fixture(scope="module", autouse=True)
def timm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The package, and an empty cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield import_timm()


@pytest.mark.parametrize(("name", "width", "head"), MODELS)
@torch.no_grad()
def test_a_model_returns_its_logits_and_the_features_of_its_head(name: str, width: int, head: str) -> None:
    backbone = make_backbone(name, 3, 7).eval()
    assert isinstance(backbone, TimmBackbone)
    images = torch.randn(2, 3, 224, 224)
    logits, features = backbone(images)
    assert (logits.shape, features.shape) == ((2, 7), (2, width))
    torch.testing.assert_close(logits, backbone.model(images))
    torch.testing.assert_close(backbone.model.get_classifier()(features), logits)
    assert head_parameters(backbone) == {f"model.{head}.weight", f"model.{head}.bias"}


@pytest.mark.parametrize(("name", "side"), [(RESNET, 224), (f"{RESNET}@64", 64), (VIT, 224), (f"{VIT}@64", 64)])
@pytest.mark.parametrize("size", [(8, 8), (64, 64), (250, 230)])
@torch.no_grad()
def test_images_are_resized_to_the_side_of_the_model_or_the_given_one(
    name: str, side: int, size: tuple[int, int]
) -> None:
    model, sizes = make_classifier(name, 4), list[tuple[int, ...]]()
    first = next(module for module in model.modules() if isinstance(module, torch.nn.Conv2d))
    first.register_forward_pre_hook(lambda _, inputs: sizes.append(tuple(inputs[0].shape[-2:])))
    assert model(torch.zeros(2, 3, *size, dtype=torch.uint8)).logits.shape == (2, 4)
    assert sizes == [(side, side)]
    assert input_side(name) == side


def test_the_normalization_is_that_of_the_model() -> None:
    model = make_classifier(RESNET, 4, MEAN, STD)
    assert model.mean.flatten().tolist() == pytest.approx([0.485, 0.456, 0.406])
    assert model.std.flatten().tolist() == pytest.approx([0.229, 0.224, 0.225])
    gray = make_classifier(RESNET, 4, MEAN[:1], STD[:1])
    assert (gray.mean.item(), gray.std.item()) == pytest.approx((0.449, 0.226))
    vit = make_classifier(VIT, 4, MEAN, STD)
    assert vit.mean.flatten().tolist() == vit.std.flatten().tolist() == [0.5, 0.5, 0.5]


def test_a_model_that_timm_does_not_know_is_named_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^network 'timm:nothing' cannot be built \(RuntimeError: .*nothing.*\Z"):
        make_backbone("timm:nothing", 3, 4)


@torch.no_grad()
def test_timms_efficientnet_lite_with_our_weights_gives_our_logits(timm: Any) -> None:
    ours = make_backbone("efficientnet-lite0", 3, 1000, pretrained=True).eval()
    theirs = timm.create_model("tf_efficientnet_lite0").eval()
    # Both networks define their layers in the order in which they are computed.
    names, tensors = list(theirs.state_dict()), list(ours.state_dict().values())
    theirs.load_state_dict(dict(zip(names, tensors, strict=True)))
    images: Tensor = (photographs(side=128)[::8].float() - 127) / 128
    expected = theirs(images)
    assert expected.abs().max() > 1
    torch.testing.assert_close(ours(images)[0], expected, atol=1e-4, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(("network", "side"), [(f"{RESNET}@32", 40), (f"{VIT}@32", 16)])
def test_a_model_trains_saves_loads_and_is_exported(network: str, side: int, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, side, side, 3)).astype(np.uint8)
    classifier = RankingMatchClassifier("fixmatch-ra", network=network, steps=2, batch_size=4, mu=1, threads=1)
    classifier.fit(images, np.where(np.arange(12) < 6, np.arange(12) % 3, -1)).save(tmp_path / "model.safetensors")
    loaded = RankingMatchClassifier.load(tmp_path / "model.safetensors")
    assert np.array_equal(loaded.predict_proba(images), classifier.predict_proba(images))
    assert export(tmp_path / "model.safetensors", tmp_path / "model.onnx").difference < 1e-4
