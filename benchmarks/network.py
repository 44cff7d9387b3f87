"""What an image costs in the paper's network, wrn-28-2 at 32×32×3: the extrapolations of docs/scale.md start from it.

    python benchmarks/network.py

Operations are counted, not measured. Activations are the tensors that autograd saves in a pass, each storage once. The
time is the CPU time of one thread for a pass with its backward.
"""

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from measuring import Rows, add_keep, in_turns, markdown, report
from rankingmatch.networks import Classifier
from steps import Pass, take_passes, wide_case

IMAGES, ROUNDS = 120, 5


def operations(work: Callable[[], object]) -> int:
    """The floating-point operations of a call."""
    counter = FlopCounterMode(display=False)
    with counter:
        work()
    return int(counter.get_total_flops())


def saved_bytes(model: Classifier, images: Tensor) -> int:
    """The bytes that autograd keeps for the backward of a pass, without the weights."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model(images).logits.sum()  # holds the graph, so that no storage is reused
    del output
    return sum(kept.values())


def measure() -> dict[str, Any]:
    """Operations, bytes and seconds, each of one image; and the number of parameters."""
    case = wide_case()
    model, images = case.state.model, case.images
    passes = [Pass(IMAGES, graph=True, input_gradient=False, training=True)]
    times = in_turns({"pass": lambda: take_passes(model, passes, images)}, ROUNDS)
    with torch.no_grad():
        prediction = operations(lambda: model(images))
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "training": operations(lambda: model(images).logits.sum().backward()) / len(images),
        "prediction": prediction / len(images),
        "activations": saved_bytes(model, images) / len(images),
        "seconds": statistics.median(times["pass"]) / IMAGES,
    }


def table(rows: Rows) -> str:
    """A line for each quantity."""
    (row,) = rows
    giga, mega = 1e9, 1e6
    compute = f"{row['training'] / giga:.2f} GFLOP in training, {row['prediction'] / giga:.2f} in prediction"
    weights = f"{row['parameters']:,}, 4 × {4 * row['parameters'] / mega:.1f} MB"
    lines = [
        ("computing an image", compute),
        ("activations of an image, kept for the backward pass", f"{row['activations'] / mega:.1f} MB"),
        ("parameters, and their weights, gradients, momentum and EMA in float32", weights),
        ("one thread, an image with backward", f"{1000 * row['seconds']:.1f} ms"),
    ]
    return markdown(("`wrn-28-2`, 32×32×3", "value"), lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_keep(parser)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure()]
    report(table(rows), rows, given.keep)


if __name__ == "__main__":
    main()
