"""CC-GAN against loops written from its paper; holes, and who is trained by which loss."""

import math
from typing import Any

import naive
import pytest
import torch
from torch import Tensor, nn

from rankingmatch.core.errors import ConfigError
from rankingmatch.methods import Batch, Context, Task, make_method
from rankingmatch.methods.cc_gan import CCGAN, draw_holes
from rankingmatch.networks import Classifier, InpaintingGenerator, Output

LABELS = [1, 0, 2]
TWO_CHANNELS = Classifier(nn.Identity(), torch.zeros(2), torch.ones(2))


class Linear(nn.Module):
    """Logits that are linear in the pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2 * 6 * 4, 3)

    def forward(self, images: Tensor) -> Output:
        logits = self.layer(images.flatten(1).to(self.layer.weight.dtype) / 100)
        return Output(logits, logits)


def problem(**hyperparameters: Any) -> tuple[CCGAN, Linear, Batch]:
    torch.manual_seed(0)
    method = make_method("cc-gan", hyperparameters)
    method.prepare(Task(3, 3, 6, model=TWO_CHANNELS))
    assert isinstance(method, CCGAN)
    images = torch.randint(256, (7, 2, 6, 4)).byte()
    batch = Batch((images[:3],), torch.tensor(LABELS), (images[3:],))
    return method, Linear().double(), batch


def context() -> Context:
    return Context(0, 10, nn.Identity(), torch.Generator().manual_seed(5))


def naive_logits(model: Linear, image: list[list[list[float]]]) -> list[float]:
    pixels = [value / 100 for plane in image for row in plane for value in row]
    weight, bias = model.layer.weight.tolist(), model.layer.bias.tolist()
    return [sum(w * x for w, x in zip(line, pixels, strict=True)) + b for line, b in zip(weight, bias, strict=True)]


def realness(model: Linear, image: list[list[list[float]]]) -> float:
    """D(x): one minus the probability of a further class with the logit 0."""
    return 1 - naive.softmax([*naive_logits(model, image), 0.0])[-1]


@pytest.mark.parametrize("given", [{}, {"adversarial_weight": 0.3}, {"whole_weight": 0.7}, {"hole": 0.9}])
def test_loss_equals_an_independent_computation(given: dict[str, float]) -> None:
    method, model, batch = problem(**given)
    losses = method(model, batch, context())
    (real,) = batch.unlabeled
    kept = draw_holes(real, method.hole, context().generator)
    whole = method.generator(real, kept).tolist()
    total = 0.0
    for image, label in zip(batch.labeled[0].tolist(), LABELS, strict=True):
        total += naive.cross_entropy(naive_logits(model, image), label) / 3
    for image, mask, made in zip(real.tolist(), kept.tolist(), whole, strict=True):
        filled = [
            [[x if m else g for x, m, g in zip(*rows, strict=True)] for rows in zip(plane, mask[0], other, strict=True)]
            for plane, other in zip(image, made, strict=True)
        ]
        weight = method.adversarial_weight
        total -= weight * math.log(realness(model, image)) / 4
        for fake, share in ((filled, 1.0), (made, method.whole_weight)):
            total -= weight * share * math.log(1 - realness(model, fake)) / 4
            total -= share * math.log(realness(model, fake)) / 4
    assert losses.total.item() == pytest.approx(total, rel=1e-9)


def gradients(loss: Tensor, module: nn.Module) -> list[Tensor]:
    return [
        torch.zeros_like(parameter) if gradient is None else gradient
        for parameter, gradient in zip(
            module.parameters(),
            torch.autograd.grad(loss, list(module.parameters()), retain_graph=True, allow_unused=True),
            strict=True,
        )
    ]


@pytest.mark.parametrize("whole_weight", [0.0, 1.0])
def test_each_network_is_trained_by_its_own_loss(whole_weight: float) -> None:
    method, model, batch = problem(whole_weight=whole_weight)
    parts = method(model, batch, context()).parts
    for name in ("labeled_ce", "real", "generated"):
        assert all(gradient.any() for gradient in gradients(parts[name], model)), name
        assert not any(gradient.any() for gradient in gradients(parts[name], method.generator)), name
    assert not any(gradient.any() for gradient in gradients(parts["generator"], model))
    assert all(gradient.any() for gradient in gradients(parts["generator"], method.generator))


@pytest.mark.parametrize(
    ("height", "width", "hole", "sides"), [(8, 8, 0.5, (4, 4)), (9, 3, 0.3, (3, 1)), (2, 2, 1, (2, 2))]
)
def test_holes_have_one_size_and_are_anywhere(height: int, width: int, hole: float, sides: tuple[int, int]) -> None:
    kept = draw_holes(torch.zeros(500, 3, height, width), hole, torch.Generator().manual_seed(0))
    assert kept.shape == (500, 1, height, width)
    starts = set()
    for inside in ~kept[:, 0]:
        rows, columns = inside.any(1).nonzero().flatten(), inside.any(0).nonzero().flatten()
        assert (len(rows), len(columns)) == sides
        assert inside[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
        assert inside.sum() == sides[0] * sides[1]
        starts.add((int(rows[0]), int(columns[0])))
    assert len(starts) == (height - sides[0] + 1) * (width - sides[1] + 1)


@pytest.mark.parametrize(("channels", "height", "width"), [(1, 8, 8), (3, 5, 17), (2, 1, 1)])
def test_the_generator_makes_images_of_any_size_and_does_not_see_the_hole(
    channels: int, height: int, width: int
) -> None:
    generator = InpaintingGenerator(channels)
    images = torch.randint(256, (4, channels, height, width)).byte()
    kept = draw_holes(images, 0.5, torch.Generator().manual_seed(0))
    made = generator(images, kept)
    assert made.shape == images.shape
    assert 0 <= made.min() <= made.max() <= 255
    assert torch.equal(made, generator(torch.where(kept, images, 77), kept))


def test_running_statistics_are_those_of_real_images() -> None:
    method = make_method("cc-gan", {})
    method.prepare(Task(3, 3, 6, model=TWO_CHANNELS))
    norm = nn.BatchNorm2d(2, momentum=1.0)

    def network(images: Tensor) -> Output:
        logits = norm(images.float()).flatten(1)[:, :3]
        return Output(logits, logits)

    model = nn.Module()
    model.norm, model.forward = norm, network
    _, _, batch = problem()
    method(model, batch, context())
    real = torch.cat([batch.labeled[0], batch.unlabeled[0]]).float()
    torch.testing.assert_close(norm.running_mean, real.mean((0, 2, 3)))


def test_outputs_of_frozen_layers_are_an_error() -> None:
    with pytest.raises(ConfigError, match="needs tune all"):
        make_method("cc-gan", {}).prepare(Task(3, 4, 6))


@pytest.mark.parametrize("scale", [1e4, -1e4, 0.0])
def test_extreme_logits_give_finite_losses_and_gradients_in_single_precision(scale: float) -> None:
    method, model, batch = problem()
    model.float()
    with torch.no_grad():
        model.layer.weight.mul_(scale)
    losses = method(model, batch, context())
    losses.total.backward()
    assert all(torch.isfinite(part) for part in [losses.total, *losses.parts.values()])
    for parameter in [*model.parameters(), *method.parameters()]:
        assert parameter.grad is not None
        assert torch.isfinite(parameter.grad).all()


def test_losses_hardly_depend_on_autocast() -> None:
    method, model, batch = problem()
    exact = method(model.float(), batch, context()).total
    with torch.autocast("cpu", torch.bfloat16):
        rounded = method(model, batch, context()).total
    assert rounded.dtype == torch.float32
    assert rounded.item() == pytest.approx(exact.item(), rel=2e-2)
