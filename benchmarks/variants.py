"""Alternatives that were tried to make a step faster, each compared with the current code: below 1 it is faster.

python benchmarks/variants.py --network wrn-28-2 --batch-size 4 --rounds 3
python benchmarks/variants.py --network digits --batch-size 32 --rounds 7
"""

import argparse
import copy
from collections.abc import Mapping
from functools import partial

import torch

from measuring import CPU, Rows, Work, add_keep, in_turns, markdown, milliseconds, ratio, report
from peers import ema_loop
from rankingmatch.networks import Classifier
from rankingmatch.training.batches import make_batch
from rankingmatch.training.loop import update_ema
from steps import Case, Pass, digits_case, take_passes, wide_case


def network_works(case: Case, count: int) -> dict[str, Work]:
    """One pass and its backward: current, in (n, c, h, w) order, in bfloat16, compiled."""
    passes = [Pass(count, graph=True, input_gradient=False, training=True)]
    model, images = case.state.model, case.images
    plain, compiled = copy.deepcopy(model), copy.deepcopy(model)
    plain.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    compiled.backbone.compile()

    def in_bfloat16() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            take_passes(model, passes, images)

    def in_default_order() -> None:
        views = images[torch.arange(count) % len(images)].contiguous()
        plain.zero_grad()
        plain.backbone((views.float() / 255 - plain.mean) / plain.std)[0].sum().backward()

    return {
        "current": partial(take_passes, model, passes, images),
        "(n, c, h, w) order": in_default_order,
        "bfloat16": in_bfloat16,
        "torch.compile": partial(take_passes, compiled, passes, images),
    }


def optimizer_work(model: Classifier, **options: bool) -> Work:
    """A step of SGD over the network's weights."""
    copied = copy.deepcopy(model)
    for parameter in copied.parameters():
        parameter.grad = torch.randn_like(parameter)
    return torch.optim.SGD(copied.parameters(), lr=0.01, momentum=0.9, nesterov=True, **options).step


def update_works(case: Case) -> dict[str, Mapping[str, Work]]:
    """SGD and the EMA of the weights, each with alternatives."""
    model, ema = case.state.model, case.state.ema

    return {
        "SGD": {
            "current": optimizer_work(model),
            "fused": optimizer_work(model, fused=True),
        },
        "EMA": {
            "current": partial(update_ema, copy.deepcopy(ema), model, 0.999),
            "tensor by tensor": partial(ema_loop, copy.deepcopy(ema), model, 0.999),
        },
    }


def batch_work(case: Case) -> Work:
    """Making the batch of a step: the most that could be saved by preparing it in another thread."""
    state, settings = case.state, case.config.training
    return lambda: make_batch(case.split, state.objective.method, state.views, settings, state.step, CPU)


def table(rows: Rows) -> str:
    """A line for each variant."""
    lines = [
        (row["part"], row["variant"], milliseconds(row, "seconds"), f"{ratio(row, 'seconds', 'current'):.2f}")
        for row in rows
    ]
    return markdown(("part of a step", "variant", "time", "ratio to current"), lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=["wrn-28-2", "digits"], default="wrn-28-2")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    add_keep(parser)
    given = parser.parse_args()
    torch.set_num_threads(1)
    make = wide_case if given.network == "wrn-28-2" else digits_case
    case = make(batch_size=given.batch_size)
    settings = case.config.training
    step = {"current": case.step, "batch only": batch_work(case)}
    groups: dict[str, Mapping[str, Work]] = {
        "network": network_works(case, settings.batch_size * (1 + 2 * settings.mu)),
        **update_works(case),
        "whole step": step,
    }
    rows: Rows = []
    for name, works in groups.items():
        times = in_turns(works, given.rounds * (1 if name in ("network", "whole step") else 5))
        rows += [
            {"part": name, "variant": variant, "seconds": times[variant], "current": times["current"]}
            for variant in works
        ]
    report(table(rows), rows, given.keep, given.network)


if __name__ == "__main__":
    main()
