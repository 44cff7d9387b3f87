"""VAT against loops written from its paper; its perturbation points where the prediction changes most."""

import copy
from typing import Any

import naive
import naive_methods
import pytest
import torch
from linear import LABELS, Linear, fixed_batch, losses_of, naive_logits, rows_of
from lookup import precision
from tiny import CPU, VIEWS, tiny_settings, tiny_split, tiny_state
from torch import Tensor

from rankingmatch.losses import kl_divergence
from rankingmatch.methods import Context, make_method
from rankingmatch.methods.passes import perturbed_logits
from rankingmatch.methods.vat import VAT
from rankingmatch.networks import Classifier
from rankingmatch.training.batches import make_batch


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"epsilon": 20.0},
        {"xi": 0.5},
        {"power_iterations": 0},
        {"power_iterations": 4},
        {"adversarial_weight": 3.0},
        {"entropy_weight": 1.0},
        {"ramp": 0.8},
    ],
)
def test_loss_equals_an_independent_computation(given: dict[str, Any]) -> None:
    h, model = VAT(**given), Linear(9.0)
    with precision():
        method = make_method("vat", given)
        total = losses_of(method, model, step=2).total.item()
        draws = torch.randn(6, 1, 2, 2, generator=torch.Generator().manual_seed(77)).flatten(1).tolist()
    batch = fixed_batch(method)
    labeled = zip(rows_of(batch.labeled[0]), LABELS, strict=True)
    expected = sum(naive.cross_entropy(naive_logits(model, row), y) for row, y in labeled) / 4
    slope = (model.weight / 255).tolist()
    for row, draw in zip(rows_of(batch.unlabeled[0]), draws, strict=True):

        def moved(r: list[float], row: list[float] = row) -> list[float]:
            return naive_logits(model, [x + y for x, y in zip(row, r, strict=True)])

        p, d = naive.softmax(naive_logits(model, row)), naive_methods.unit(draw)
        for _ in range(h.power_iterations):
            # As the paper says it: the gradient of KL(p ‖ q) at ξd; dKL/dlogits = q - p.
            q = naive.softmax(moved([h.xi * x for x in d]))
            d = naive_methods.unit([sum(slope[c][k] * (q[c] - p[c]) for c in range(3)) for k in range(4)])
        divergence = naive_methods.kl(p, moved([h.epsilon * x for x in d]))
        expected += h.adversarial_weight * min(1, 0.2 / h.ramp) * divergence / 6
        expected += h.entropy_weight * naive_methods.entropy(naive_logits(model, row)) / 6
    assert total == pytest.approx(expected, rel=1e-6)


def test_the_direction_agrees_with_the_second_derivative() -> None:
    """Hd by finite difference in float32, as the method does it, against Hd by differentiating twice in float64."""
    split, settings = tiny_split(), tiny_settings()
    state = tiny_state(split, settings, "vat")
    batch, _ = make_batch(split, state.objective.method, VIEWS, settings, 0, CPU)
    images = batch.unlabeled[0]
    start = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    start /= start.flatten(1).norm(dim=1).view(-1, 1, 1, 1)

    def slope(model: Classifier, at: Tensor, *, graph: bool) -> Tensor:
        targets = perturbed_logits(model, images, torch.zeros_like(at)).detach().softmax(1)
        cost = kl_divergence(perturbed_logits(model, images, at), targets).sum()
        return torch.autograd.grad(cost, at, create_graph=graph)[0]

    xi = VAT().xi
    near = slope(state.model, (xi * start).requires_grad_(), graph=False)
    zero = torch.zeros(images.shape, dtype=torch.float64, requires_grad=True)
    exact = slope(copy.deepcopy(state.model).double(), zero, graph=True)
    (product,) = torch.autograd.grad(exact, zero, start.double())
    cosines = torch.cosine_similarity(near.double().flatten(1), product.flatten(1))
    assert cosines.median() > 0.99


def test_running_statistics_see_the_joint_pass_alone() -> None:
    split, settings = tiny_split(), tiny_settings()
    state = tiny_state(split, settings, "vat")
    alone = copy.deepcopy(state.model)
    batch, _ = make_batch(split, state.objective.method, VIEWS, settings, 0, CPU)
    state.objective(batch, Context(1, 2, state.ema, torch.Generator()))
    alone(torch.cat([batch.labeled[0], batch.unlabeled[0]]))
    expected = dict(alone.named_buffers())
    for key, value in state.model.named_buffers():
        assert torch.equal(value, expected[key]), key
