"""ONNX Runtime computes what torch computes; where it cannot, torch is used."""

import logging

import numpy as np
import pytest
import torch
from real_images import photographs
from tiny import CPU
from torch import Tensor, nn

from rankingmatch.networks import (
    Classifier,
    freeze,
    make_classifier,
    onnx,
    predict_logits,
    predict_logits_and_features,
    predict_probabilities,
)
from rankingmatch.networks.onnx import accelerated


@pytest.fixture
def images() -> np.ndarray:
    return photographs(side=64).permute(0, 2, 3, 1).numpy()


def test_labels_probabilities_and_features_are_those_of_torch(
    images: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx, "WORTH_CONVERTING", 1)
    torch.manual_seed(0)
    model = make_classifier("efficientnet-lite0", 10, pretrained=True).eval()
    nn.init.normal_(model.backbone.classifier.weight, std=0.1)  # type: ignore[union-attr,arg-type]
    freeze(model, "top")  # as after fine-tuning: it takes images or maps
    fast = accelerated(model)
    predict_logits(fast, images[:2], CPU)
    fast.module = nn.Identity()  # it cannot use torch any more
    expected, ours = (predict_probabilities(one, images, CPU) for one in (model, fast))
    assert (ours.argmax(1) == expected.argmax(1)).all()
    assert len(set(expected.argmax(1))) > 2
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)
    pairs = zip(*(predict_logits_and_features(one, images, CPU) for one in (fast, model)), strict=True)
    for value, reference in pairs:
        np.testing.assert_allclose(value, reference, rtol=0, atol=1e-4)
    assert not model.training


class LogitsOnly(nn.Module):
    def __init__(self, *, convertible: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.convertible = convertible

    def forward(self, images: Tensor) -> Tensor:
        mean = images.mean((2, 3))
        if not self.convertible and mean.max() > 0.4:  # a graph has no branches
            mean = -mean
        logits: Tensor = self.linear(mean)
        return logits


class DependsOnSize(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.mean((2, 3)) if len(images) == 2 else 1 - images.mean((2, 3))


@pytest.mark.parametrize("network", [LogitsOnly(), LogitsOnly(convertible=False), DependsOnSize()])
@pytest.mark.parametrize("exact", [True, False])
def test_a_network_that_would_be_computed_differently_is_computed_by_torch_without_a_message(
    network: nn.Module,
    exact: bool,
    images: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(onnx, "WORTH_CONVERTING", 1)
    run, converted = onnx._run, exact and network.__dict__.get("convertible", False)
    monkeypatch.setattr(onnx, "_run", lambda *given: [value * (1 if exact else 1.01) for value in run(*given)])
    model = Classifier(network, torch.full((3,), 0.5), torch.ones(3)).eval()
    with caplog.at_level(logging.INFO):
        logits, features = predict_logits_and_features(accelerated(model), images, CPU)
    assert features is None
    expected = predict_logits(model, images, CPU)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5 if converted else 0)
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.name.startswith("rankingmatch")]


def test_it_is_converted_when_enough_images_are_expected_or_have_come(
    images: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted: list[int] = []
    monkeypatch.setattr(onnx, "onnx_function", lambda module, example: converted.append(len(example)))
    monkeypatch.setattr(onnx, "WORTH_CONVERTING", 100 * 64 * 64)
    model = Classifier(LogitsOnly(), torch.full((3,), 0.5), torch.ones(3)).eval()
    predict_logits(accelerated(model, 99), images, CPU)
    assert converted == []
    predict_logits(accelerated(model, 100), images, CPU)
    assert converted == [2]
    unknown = accelerated(model)
    for _ in range(4):
        predict_logits(unknown, images, CPU)  # 24 each
    assert converted == [2]
    for _ in range(2):
        predict_logits(unknown, images, CPU)
    assert converted == [2, 2]  # once, even though it failed
    accelerated(model, 1000)(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))  # with gradients
    assert converted == [2, 2]
