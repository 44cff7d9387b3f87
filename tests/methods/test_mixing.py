"""MixUp's draws and its arithmetic, and sharpening."""

import naive
import pytest
import torch
from linear import Linear, losses_of

from rankingmatch.methods import make_method
from rankingmatch.methods.mixing import MixDraw, draw_mixup, mixup
from rankingmatch.methods.targets import align_distribution, sharpen


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_every_row_is_mixed_with_its_partner() -> None:
    rows = torch.randn(5, 3, dtype=torch.float64, generator=generator())
    shares, partners = [1.0, 0.5, 0.75, 0.6, 0.9], [4, 0, 1, 3, 2]
    draw = MixDraw(torch.tensor(shares, dtype=torch.float64), torch.tensor(partners))
    expected = torch.tensor(naive.mixed(rows.tolist(), shares, partners), dtype=torch.float64)
    torch.testing.assert_close(mixup(rows, draw), expected)


def test_images_become_float_on_their_own_scale() -> None:
    images = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)
    mixed = mixup(images, MixDraw(torch.tensor([0.75, 0.9]), torch.tensor([1, 0])))
    assert mixed.dtype == torch.float32
    assert mixed.flatten().tolist() == pytest.approx([63.75, 229.5])


def test_a_row_keeps_at_least_half_of_itself() -> None:
    # The larger of λ and 1-λ under Beta(1, 1) is uniform in [1/2, 1]; the variance of Beta(α, α) is 1/(4(2α + 1)).
    share = draw_mixup(40_000, 1.0, generator()).share
    assert share.min() >= 0.5
    assert share.mean().item() == pytest.approx(0.75, abs=0.005)
    share = draw_mixup(40_000, 0.75, generator()).share
    assert (share - 0.5).square().mean().item() == pytest.approx(0.1, abs=0.002)


def test_draws_depend_on_the_generator_alone_and_differ_by_row() -> None:
    first, again, other = (draw_mixup(50, 0.75, generator(seed)) for seed in (3, 3, 4))
    assert torch.equal(first.share, again.share)
    assert torch.equal(first.partner, again.partner)
    assert not torch.equal(first.share, other.share)
    assert len(first.share.unique()) == 50
    assert sorted(first.partner.tolist()) == list(range(50))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_sharpening_equals_its_formula(temperature: float) -> None:
    p = torch.tensor([[0.7, 0.2, 0.1], [1.0, 0.0, 0.0], [0.25, 0.25, 0.5]], dtype=torch.float64)
    expected = [naive.sharpened(row, temperature) for row in p.tolist()]
    torch.testing.assert_close(sharpen(p, temperature), torch.tensor(expected, dtype=torch.float64))


def test_sharpening_to_the_extreme_stays_a_distribution() -> None:
    sharp = sharpen(torch.full((1, 200), 1 / 200).index_fill(1, torch.tensor([7]), 2 / 200), 1e-3)
    assert sharp[0, 7].item() == pytest.approx(1.0)
    assert sharp.isfinite().all()


def test_alignment_equals_its_formula() -> None:
    p, wanted, seen = [[0.7, 0.2, 0.1], [0.0, 1.0, 0.0]], [0.5, 0.25, 0.25], [0.2, 0.2, 0.6]
    aligned = align_distribution(torch.tensor(p), torch.tensor(wanted), torch.tensor(seen))
    for row, before in zip(aligned.tolist(), p, strict=True):
        weights = [v * w / s for v, w, s in zip(before, wanted, seen, strict=True)]
        assert row == pytest.approx([weight / sum(weights) for weight in weights])


def test_a_class_never_predicted_does_not_break_the_alignment() -> None:
    aligned = align_distribution(torch.tensor([[0.0, 1.0]]), torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]))
    assert aligned.tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("name", ["mixmatch", "realmix", "remixmatch"])
@pytest.mark.parametrize(("scale", "step"), [(0.0, 10), (1e3, 10), (1e6, 10), (1e6, 0)])
def test_extreme_logits_give_finite_losses_and_gradients(name: str, scale: float, step: int) -> None:
    method, model = make_method(name), Linear(scale)
    losses = losses_of(method, model, step)
    losses.total.backward()
    assert losses.total.isfinite()
    for parameter in [*model.parameters(), *method.parameters()]:
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
