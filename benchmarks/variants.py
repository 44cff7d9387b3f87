"""What was tried to make a step faster, each beside what is done now: below 1 it would win.

python benchmarks/variants.py --network wrn-28-2 --batch-size 8 --rounds 3
"""

import argparse
import copy
from collections.abc import Mapping
from functools import partial

import torch
from torch import nn

from measuring import CPU, Work, in_turns, markdown, milliseconds, ratio
from peers import ema_loop
from rankingmatch.networks import Classifier
from rankingmatch.training.batches import make_batch
from rankingmatch.training.loop import update_ema
from steps import Case, Pass, digits_case, take_passes, wide_case


def network_works(case: Case, count: int) -> dict[str, Work]:
    """One pass and its backward: as it is, in (n, c, h, w) order, in bfloat16, compiled."""
    passes = [Pass(count, graph=True, input_gradient=False, training=True)]
    model, images = case.state.model, case.images
    plain, compiled = copy.deepcopy(model), copy.deepcopy(model)
    plain.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    compiled.backbone.compile()

    def half() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            take_passes(model, passes, images)

    def in_order() -> None:
        views = images[torch.arange(count) % len(images)].contiguous()
        plain.zero_grad()
        plain.backbone((views.float() / 255 - plain.mean) / plain.std)[0].sum().backward()

    return {
        "now": partial(take_passes, model, passes, images),
        "(n, c, h, w) order": in_order,
        "bfloat16": half,
        "torch.compile": partial(take_passes, compiled, passes, images),
    }


def optimizer_work(model: Classifier, **how: bool) -> Work:
    """A step of SGD over the network's weights."""
    mine = copy.deepcopy(model)
    for parameter in mine.parameters():
        parameter.grad = torch.randn_like(parameter)
    return torch.optim.SGD(mine.parameters(), lr=0.01, momentum=0.9, nesterov=True, **how).step


def update_works(case: Case) -> dict[str, Mapping[str, Work]]:
    """SGD and the average of the weights, each in several ways."""
    model, ema = case.state.model, case.state.ema

    def average(way: nn.Module) -> nn.Module:
        return copy.deepcopy(way)

    return {
        "SGD": {
            "now": optimizer_work(model),
            "foreach": optimizer_work(model, foreach=True),
            "fused": optimizer_work(model, fused=True),
        },
        "EMA": {
            "now": partial(update_ema, average(ema), model, 0.999),
            "tensor by tensor": partial(ema_loop, average(ema), model, 0.999),
        },
    }


def batch_work(case: Case) -> Work:
    """The batch of a step, which a thread could make ahead: no more than this can be won by it."""
    state, settings = case.state, case.config.training
    return lambda: make_batch(case.split, state.objective.method, state.views, settings, state.step, CPU)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=["wrn-28-2", "digits"], default="wrn-28-2")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    make = wide_case if given.network == "wrn-28-2" else digits_case
    case = make(batch_size=given.batch_size)
    settings = case.config.training
    step = {"now": case.step, "batch ahead, at best": batch_work(case)}
    groups: dict[str, Mapping[str, Work]] = {
        "network": network_works(case, settings.batch_size * (1 + 2 * settings.mu)),
        **update_works(case),
        "whole step": step,
    }
    lines: list[tuple[str, ...]] = []
    for name, works in groups.items():
        times = in_turns(works, given.rounds * (1 if name in ("network", "whole step") else 5))
        for way in works:
            value = ratio(times, way, "now")
            lines.append((name, way, milliseconds(times, way), f"{value:.3f}"))
    print(markdown((f"{given.network}, B={settings.batch_size}", "way", "time", "against now"), lines))


if __name__ == "__main__":
    main()
