"""The stacked what-where autoencoder against loops written from its paper: pooling, unpooling, errors."""

from typing import Any

import naive
import pytest
import torch
from torch import Tensor, nn

from rankingmatch.core.errors import ConfigError
from rankingmatch.methods import Batch, Context, Task, make_method
from rankingmatch.methods.swwae import SWWAE
from rankingmatch.networks import Classifier, WhatWhereDecoder, WhatWhereEncoder, make_backbone, make_classifier

Maps = list[list[list[float]]]  # channel, row, column
LABELS = [1, 0, 2]
STAGES = (((2,), 2), ((3, 2), 3))


def identity(width: int) -> nn.Module:
    return nn.Identity()


class Plain(WhatWhereEncoder):
    """Without normalization, so that images do not depend on each other."""

    def __init__(self) -> None:
        super().__init__(1, 3, stages=STAGES, norm=identity)

    def decoder(self) -> WhatWhereDecoder:
        return WhatWhereDecoder(self.channels, self.plan, identity)


def problem(**hyperparameters: Any) -> tuple[SWWAE, Classifier, Batch]:
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
    weight, bias = encoder.head.weight.tolist(), encoder.head.bias.tolist()
    logits = [sum(w * f for w, f in zip(line, features, strict=True)) + b for line, b in zip(weight, bias, strict=True)]
    again = through(method.decoder.stages[0], unpooled(what, places_2, len(second[0]), len(second[0][0])))
    pixels = through(method.decoder.stages[1], unpooled(again, places_1, 5, 4))
    return logits, mean_square(first, pixels), mean_square(second, again)


@pytest.mark.parametrize("given", [{}, {"reconstruction_weight": 0.7}, {"intermediate_weight": 3.0}])
def test_loss_equals_an_independent_computation(given: dict[str, float]) -> None:
    method, model, batch = problem(**given)
    losses = method(model, batch, Context(0, 10, model, torch.Generator()))
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


def test_errors_of_maps_move_the_encoder_and_the_decoder() -> None:
    method, model, batch = problem(reconstruction_weight=0.0)
    losses = method(model, batch, Context(0, 10, model, torch.Generator()))
    losses.parts["maps_l2"].backward()
    for module in (model.backbone.stages, method.decoder.stages[0]):
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in module.parameters())  # type: ignore[union-attr]


def test_another_network_is_an_error_that_names_the_right_ones() -> None:
    with pytest.raises(ConfigError, match="set network to swwae or swwae-small"):
        make_method("swwae", {}).prepare(Task(3, 4, 6, model=make_classifier("small", 3, channels=1)))


def test_losses_hardly_depend_on_autocast() -> None:
    method, model, batch = problem()
    method.float()
    model.float()
    exact = method(model, batch, Context(0, 10, model, torch.Generator())).total
    with torch.autocast("cpu", torch.bfloat16):
        rounded = method(model, batch, Context(0, 10, model, torch.Generator())).total
    assert rounded.dtype == torch.float32
    assert rounded.item() == pytest.approx(exact.item(), rel=2e-2)
