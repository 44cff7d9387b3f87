"""Methods with a generator or a decoder against loops written from their papers: CC-GAN and SWWAE."""

import math
from typing import Any

import naive
import naive_methods
import pytest
import torch
from torch import Tensor, nn

from rankingmatch.core.errors import ConfigError
from rankingmatch.methods import Batch, Context, Method, Task, make_method
from rankingmatch.methods.cc_gan import CCGAN, draw_holes
from rankingmatch.methods.swwae import SWWAE
from rankingmatch.networks import (
    Classifier,
    InpaintingGenerator,
    Output,
    WhatWhereDecoder,
    WhatWhereEncoder,
    make_backbone,
    make_classifier,
)

LABELS = [1, 0, 2]


def context() -> Context:
    return Context(0, 10, nn.Identity(), torch.Generator().manual_seed(5))


# --- CC-GAN --------------------------------------------------------------------------------------------------

TWO_CHANNELS = Classifier(nn.Identity(), torch.zeros(2), torch.ones(2))


class Linear(nn.Module):
    """Logits that are linear in the pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2 * 6 * 4, 3)

    def forward(self, images: Tensor) -> Output:
        logits = self.layer(images.flatten(1).to(self.layer.weight.dtype) / 100)
        return Output(logits, logits)


def gan(**hyperparameters: Any) -> tuple[CCGAN, Linear, Batch]:
    torch.manual_seed(0)
    method = make_method("cc-gan", hyperparameters)
    method.prepare(Task(3, 3, 6, model=TWO_CHANNELS))
    assert isinstance(method, CCGAN)
    images = torch.randint(256, (7, 2, 6, 4)).byte()
    batch = Batch((images[:3],), torch.tensor(LABELS), (images[3:],))
    return method, Linear().double(), batch


def naive_logits(model: Linear, image: list[list[list[float]]]) -> list[float]:
    return naive_methods.linear(model.layer, [value / 100 for plane in image for row in plane for value in row])


def realness(model: Linear, image: list[list[list[float]]]) -> float:
    """D(x): one minus the probability of a further class with the logit 0."""
    return 1 - naive.softmax([*naive_logits(model, image), 0.0])[-1]


@pytest.mark.parametrize("given", [{}, {"adversarial_weight": 0.3}, {"whole_weight": 0.7}, {"hole": 0.9}])
def test_loss_equals_an_independent_computation(given: dict[str, float]) -> None:
    method, model, batch = gan(**given)
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


@pytest.mark.parametrize("whole_weight", [0.0, 1.0])
def test_each_network_is_trained_by_its_own_loss(whole_weight: float) -> None:
    method, model, batch = gan(whole_weight=whole_weight)
    parts = method(model, batch, context()).parts
    for name in ("labeled_ce", "real", "generated", "generator"):
        for module in (model, method.generator):
            weights = list(module.parameters())
            slopes = torch.autograd.grad(parts[name], weights, retain_graph=True, materialize_grads=True)
            own = (module is model) == (name != "generator")
            assert all(slope.any() == own for slope in slopes), name


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
    method, model, batch = gan()
    norm = nn.BatchNorm2d(2, momentum=1.0)
    normalized = nn.Module()
    normalized.norm, normalized.forward = norm, lambda images: model(norm(images.float()))
    method(normalized, batch, context())
    real = torch.cat([batch.labeled[0], batch.unlabeled[0]]).float()
    torch.testing.assert_close(norm.running_mean, real.mean((0, 2, 3)))


@pytest.mark.parametrize("scale", [1e4, -1e4, 0.0])
def test_extreme_logits_give_finite_losses_and_gradients_in_single_precision(scale: float) -> None:
    method, model, batch = gan()
    model.float()
    with torch.no_grad():
        model.layer.weight.mul_(scale)
    losses = method(model, batch, context())
    losses.total.backward()
    assert all(torch.isfinite(part) for part in [losses.total, *losses.parts.values()])
    for parameter in [*model.parameters(), *method.parameters()]:
        assert parameter.grad is not None
        assert torch.isfinite(parameter.grad).all()


# --- SWWAE ---------------------------------------------------------------------------------------------------

Maps = list[list[list[float]]]  # channel, row, column
STAGES = (((2,), 2), ((3, 2), 3))


def identity(width: int) -> nn.Module:
    return nn.Identity()


class Plain(WhatWhereEncoder):
    """Without normalization, so that images do not depend on each other."""

    def __init__(self) -> None:
        super().__init__(1, 3, stages=STAGES, norm=identity)

    def decoder(self) -> WhatWhereDecoder:
        return WhatWhereDecoder(self.channels, self.plan, identity)


def autoencoder(**hyperparameters: Any) -> tuple[SWWAE, Classifier, Batch]:
    """A network without normalization, in double precision, for images of 5×4 pixels."""
    torch.manual_seed(0)
    encoder = Plain()
    method = make_method("swwae", hyperparameters)
    model = Classifier(encoder, torch.tensor([0.4]), torch.tensor([0.3])).double()
    method.prepare(Task(3, 2, 6, model=model))
    assert isinstance(method, SWWAE)
    images = torch.randint(256, (7, 1, 5, 4))
    batch = Batch((images[:3].byte(),), torch.tensor(LABELS), (images[3:].byte(),))
    return method.double(), model, batch


def convolved(layer: nn.Module, maps: Maps) -> Maps:
    assert isinstance(layer, nn.Conv2d)
    weight = layer.weight.tolist()
    bias = layer.bias.tolist() if layer.bias is not None else [0.0] * len(weight)
    height, width = len(maps[0]), len(maps[0][0])
    result = []
    for kernel, shift in zip(weight, bias, strict=True):
        plane = [[shift] * width for _ in range(height)]
        for y in range(height):
            for x in range(width):
                for channel, taps in enumerate(kernel):
                    for dy in (-1, 0, 1):
                        for dx in (-1, 0, 1):
                            if 0 <= y + dy < height and 0 <= x + dx < width:
                                plane[y][x] += taps[dy + 1][dx + 1] * maps[channel][y + dy][x + dx]
        result.append(plane)
    return result


def through(layers: nn.Module, maps: Maps) -> Maps:
    assert isinstance(layers, nn.Sequential)
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            maps = convolved(layer, maps)
        elif isinstance(layer, nn.LeakyReLU):
            maps = [[[v if v > 0 else 0.1 * v for v in row] for row in plane] for plane in maps]
    return maps


def pooled(maps: Maps, side: int) -> tuple[Maps, list[list[tuple[int, int]]]]:
    """The largest value of each window, the last ones being smaller, and where it was."""
    height, width = len(maps[0]), len(maps[0][0])
    values, places = [], []
    for plane in maps:
        best = [
            [
                max((plane[y][x], y, x) for y in range(top, min(top + side, height)) for x in range(left, right))
                for left in range(0, width, side)
                for right in [min(left + side, width)]
            ]
            for top in range(0, height, side)
        ]
        values.append([[value for value, _, _ in row] for row in best])
        places.append([(y, x) for row in best for _, y, x in row])
    return values, places


def unpooled(maps: Maps, places: list[list[tuple[int, int]]], height: int, width: int) -> Maps:
    result = [[[0.0] * width for _ in range(height)] for _ in maps]
    for plane, values, where in zip(result, maps, places, strict=True):
        for value, (y, x) in zip([value for row in values for value in row], where, strict=True):
            plane[y][x] = value
    return result


def mean_square(a: Maps, b: Maps) -> float:
    squares: list[float] = torch.tensor([a, b], dtype=torch.float64).diff(dim=0).square().flatten().tolist()
    return sum(squares) / len(squares)


def naive_parts(method: SWWAE, model: Classifier, image: Tensor) -> tuple[list[float], float, float]:
    """Logits, error of the image, error of the maps between the two stages."""
    encoder = model.backbone
    assert isinstance(encoder, WhatWhereEncoder)
    first: Maps = ((image.double() / 255 - 0.4) / 0.3).tolist()
    second, places_1 = pooled(through(encoder.stages[0], first), 2)
    what, places_2 = pooled(through(encoder.stages[1], second), 3)
    features = [sum(map(sum, plane)) / (len(plane) * len(plane[0])) for plane in what]
    logits = naive_methods.linear(encoder.head, features)
    again = through(method.decoder.stages[0], unpooled(what, places_2, len(second[0]), len(second[0][0])))
    pixels = through(method.decoder.stages[1], unpooled(again, places_1, 5, 4))
    return logits, mean_square(first, pixels), mean_square(second, again)


@pytest.mark.parametrize("given", [{}, {"reconstruction_weight": 0.7}, {"intermediate_weight": 3.0}])
def test_loss_of_the_autoencoder_equals_an_independent_computation(given: dict[str, float]) -> None:
    method, model, batch = autoencoder(**given)
    losses = method(model, batch, context())
    found = [naive_parts(method, model, image) for image in torch.cat([batch.labeled[0], batch.unlabeled[0]])]
    labeled = sum(naive.cross_entropy(logits, y) for (logits, _, _), y in zip(found[:3], LABELS, strict=True)) / 3
    of_images, of_maps = (sum(errors) / 7 for errors in ([f[1] for f in found], [f[2] for f in found]))
    expected = labeled + method.reconstruction_weight * of_images + method.intermediate_weight * of_maps
    # The mean and standard deviation of the classifier are in single precision.
    assert losses.total.item() == pytest.approx(expected, rel=1e-6)
    assert min(of_images, of_maps, labeled) > 0.01


@pytest.mark.parametrize("name", ["swwae", "swwae-small"])
@pytest.mark.parametrize("size", [(1, 8, 8), (3, 32, 32), (4, 5, 17), (2, 1, 1)])
def test_the_decoder_returns_the_shapes_of_the_inputs_of_all_stages(name: str, size: tuple[int, int, int]) -> None:
    encoder = make_backbone(name, size[0], 7).eval()
    assert isinstance(encoder, WhatWhereEncoder)
    images = torch.randn(2, *size)
    logits, maps = encoder.encode(images)
    assert torch.equal(logits, encoder(images)[0])
    again = encoder.decoder().eval()(maps)
    assert [part.shape for part in again] == [images.shape, *(stage.what.shape for stage in maps[:-1])]


# --- both ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cc-gan", "swwae"])
def test_losses_hardly_depend_on_autocast(name: str) -> None:
    method: Method
    method, model, batch = gan() if name == "cc-gan" else autoencoder()
    method.float()
    exact = method(model.float(), batch, context()).total
    with torch.autocast("cpu", torch.bfloat16):
        rounded = method(model, batch, context()).total
    assert rounded.dtype == torch.float32
    assert rounded.item() == pytest.approx(exact.item(), rel=2e-2)


@pytest.mark.parametrize(
    ("name", "model", "named"),
    [
        ("cc-gan", None, "needs tune all"),  # outputs of frozen layers
        ("swwae", make_classifier("small", 3, channels=1), "set network to swwae or swwae-small"),
    ],
)
def test_another_network_is_an_error_that_names_the_right_ones(name: str, model: nn.Module | None, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make_method(name, {}).prepare(Task(3, 4, 6, model=model))
