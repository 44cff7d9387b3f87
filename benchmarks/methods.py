"""The cost of a training step beyond its network passes, for every method.

Every call of the network in a step is recorded (number of images, with or without a graph, whether the images need a
gradient). The baseline is the same passes on the bare network, with their backward.

    python benchmarks/methods.py                 # wrn-28-2 on 32×32×3, one thread
    python benchmarks/methods.py --methods rankingmatch-bm vat --rounds 9
"""

import argparse
import sys

import torch

from measuring import Rows, add_keep, in_turns, markdown, milliseconds, ratio, report
from rankingmatch.methods import METHODS
from steps import bare_work, wide_case

TARGET = 1.10
OWN_NETWORK = {"swwae"}  # it needs a network with a decoder


def table(rows: Rows) -> str:
    """A line for each method."""
    lines: list[tuple[str, ...]] = []
    for row in rows:
        calls = " + ".join(f"{images}{'' if graph else '*'}" for images, graph in row["passes"])
        measured = ratio(row["seconds"], "step", "bare")
        both = (milliseconds(row["seconds"], name) for name in ("step", "bare"))
        lines.append((row["method"], calls, *both, f"{measured:.2f}", "yes" if measured <= TARGET else "no"))
    passes = "passes (images, * without a graph)"
    return markdown(("method", passes, "step", "bare passes", "ratio", f"≤ {TARGET:.2f}"), lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=[name for name in METHODS if name not in OWN_NETWORK])
    parser.add_argument("--network", default="wrn-28-2")
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    add_keep(parser)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rows: Rows = []
    for name in given.methods:
        print(f"measuring {name}", file=sys.stderr)
        case = wide_case(name, given.batch_size, given.side, network=given.network)
        passes, bare = bare_work(case)
        times = in_turns({"bare": bare, "step": case.step}, given.rounds)
        rows.append({"method": name, "passes": [(one.images, one.graph) for one in passes], "seconds": times})
    report(table(rows), rows, given.keep)


if __name__ == "__main__":
    main()
