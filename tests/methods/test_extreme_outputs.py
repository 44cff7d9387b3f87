"""Methods that are tested by looked-up outputs: very large logits, and reduced precision."""

import copy

import pytest
import torch
from lookup import context_of, lookup_batch, prepared, random_model

NAMES = [
    "adamatch",
    "comatch",
    "crmatch",
    "dash",
    "defixmatch",
    "finessl",
    "refixmatch",
    "sequencematch",
    "simmatch",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [1000.0, -1000.0, 0.0])
def test_extreme_logits_give_finite_losses_and_gradients_in_single_precision(name: str, scale: float) -> None:
    method, model = prepared(name).float(), random_model(scale).float()
    for step in range(3):
        losses = method(model, lookup_batch(method), context_of(step))
        losses.total.backward()
        assert all(torch.isfinite(part) for part in [losses.total, *losses.parts.values()])
        assert model.logits.grad is not None
        assert torch.isfinite(model.logits.grad).all()
        assert all(torch.isfinite(value).all() for value in method.state_dict().values())


@pytest.mark.parametrize("name", NAMES)
def test_losses_hardly_depend_on_autocast(name: str) -> None:
    method, model = prepared(name).float(), random_model(2.0).float()
    other = copy.deepcopy(method)
    for step in range(3):
        exact = method(model, lookup_batch(method), context_of(step)).total
        with torch.autocast("cpu", torch.bfloat16):
            rounded = other(model, lookup_batch(other), context_of(step)).total
        assert rounded.dtype == torch.float32
        # Similarities are computed in full precision; linear heads for auxiliary losses are not.
        tolerance = 1e-2 if name in ("crmatch", "finessl") else 1e-6
        assert rounded.item() == pytest.approx(exact.item(), rel=tolerance)
