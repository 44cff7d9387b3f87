"""The cost of a training step beyond its network passes, for every method.

Every call of the network in a step is recorded (number of images, with or without a graph, whether the images need a
gradient). The baseline is the same passes on the bare network, with their backward.

    python benchmarks/methods.py                 # wrn-28-2 on 32×32×3, one thread
    python benchmarks/methods.py --methods rankingmatch-bm vat --rounds 9
"""

import argparse

import torch

from measuring import in_turns, milliseconds, ratio
from rankingmatch.methods import METHODS
from steps import bare_work, wide_case

TARGET = 1.10


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--network", default="wrn-28-2")
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"| method | passes (images, * without a graph) | step | bare passes | ratio | ≤ {TARGET:.2f} |")
    print("|---|---|---|---|---|---|")
    for name in given.methods:
        case = wide_case(name, given.batch_size, given.side, network=given.network)
        passes, bare = bare_work(case)
        times = in_turns({"bare": bare, "step": case.step}, given.rounds)
        measured = ratio(times, "step", "bare")
        calls = " + ".join(f"{one.images}{'' if one.graph else '*'}" for one in passes)
        both = f"{milliseconds(times, 'step')} | {milliseconds(times, 'bare')}"
        verdict = "yes" if measured <= TARGET else "no"
        print(f"| {name} | {calls} | {both} | {measured:.3f} | {verdict} |", flush=True)


if __name__ == "__main__":
    main()
