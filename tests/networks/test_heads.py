"""A head on normalized features: its equation, and that it survives files."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from rankingmatch.core.errors import ConfigError
from rankingmatch.networks import NormalizedLinear, make_classifier, normalize_head
from rankingmatch.runs.model import ModelInfo, load_model, save_model

CPU = torch.device("cpu")
IMAGES = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, 3, 16, 16)).astype(np.uint8))


def test_the_equation() -> None:
    head = NormalizedLinear(4, 3).requires_grad_(False)
    head.center.copy_(torch.tensor([0.5, 0.0, -1.0, 2.0]))
    features = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    for row, logits in zip(features, head(features), strict=True):
        centered = [float(value - center) for value, center in zip(row, head.center, strict=True)]
        length = sum(value**2 for value in centered) ** 0.5
        for label in range(3):
            expected = float(head.bias[label]) + sum(
                float(w) * value / length for w, value in zip(head.weight[label], centered, strict=True)
            )
            assert float(logits[label]) == pytest.approx(expected, abs=1e-5)


def test_the_scale_of_features_does_not_change_the_logits() -> None:
    head = NormalizedLinear(4, 3)
    features = torch.randn(5, 4)
    torch.testing.assert_close(head(100 * features), head(features))


def test_a_head_is_replaced_once_and_keeps_its_weights() -> None:
    model = make_classifier("wrn-10-1", 3)
    before = {name for name, _ in model.named_parameters()}
    head = normalize_head(model.backbone)
    assert normalize_head(model.backbone) is head
    assert {name for name, _ in model.named_parameters()} == before
    assert head in list(model.modules())


def test_a_network_without_a_linear_head_gets_a_sentence() -> None:
    with pytest.raises(ConfigError, match="initial_head fitted needs a network with a linear head; use random"):
        normalize_head(nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten()))


def test_a_model_with_such_a_head_is_saved_and_loaded(tmp_path: Path) -> None:
    model = make_classifier("wrn-10-1", 3).eval()
    normalize_head(model.backbone).center.fill_(0.3)
    save_model(tmp_path / "model.safetensors", model, ModelInfo("wrn-10-1", ("a", "b", "c"), 3, 16, 16))
    loaded, _ = load_model(tmp_path / "model.safetensors", CPU)
    assert torch.equal(loaded(IMAGES).logits, model(IMAGES).logits)


def test_weights_to_start_from_may_have_such_a_head(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = make_classifier("wrn-10-1", 3)
    normalize_head(model.backbone)
    path = tmp_path / "model.safetensors"
    save_model(path, model, ModelInfo("wrn-10-1", ("a", "b", "c"), 3, 16, 16))
    with caplog.at_level(logging.WARNING):
        started = make_classifier("wrn-10-1", 3, weights=str(path))
    assert "the head has a different size or kind and is initialized randomly" in caplog.text
    ours, theirs = started.state_dict(), model.state_dict()
    same = {name for name, value in ours.items() if torch.equal(value, theirs[name])}
    assert len(ours.keys() - same) == 1  # the weight of the head; its bias starts at zero both times
