"""Several processes at work on one run, as torchrun starts them; on one process everything here does nothing.

Each process has every n-th row of a batch: it augments these and takes them through the network. What comes out is
gathered, so that a method sees the whole batch on every process and computes the same losses there. A row's gradient
goes back to the process that has the row, times the number of processes, by which DDP divides the sum.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rankingmatch.core.errors import ConfigError, DivergedError, Interrupted, LostProcessError, RankingMatchError

T = TypeVar("T")

# One process of a machine may decode a large folder while the others wait. A process that has died is noticed at once.
PATIENCE = timedelta(hours=2)


@contextmanager
def processes() -> Iterator[None]:
    """Inside, the processes that torchrun has started know one another, and only the first one speaks for all."""
    if not _started_by_torchrun() or os.environ["WORLD_SIZE"] == "1":
        yield
        return
    _meet()
    if not is_first():
        logging.disable(logging.WARNING)
    try:
        yield
    except (DivergedError, Interrupted):  # it happens to all of them at once
        if is_first():
            raise
        raise SystemExit(1) from None
    except RuntimeError as error:
        _explain(error)
        raise
    finally:
        logging.disable(logging.NOTSET)
        dist.destroy_process_group()


def _started_by_torchrun() -> bool:
    return dist.is_available() and dist.is_torchelastic_launched()


def _meet() -> None:
    from torch.distributed.rendezvous import rendezvous  # not in every build of torch

    # torchrun's store outlives a restart, with the addresses of processes that are gone: each start has its own keys.
    store, number, total = next(rendezvous("env://"))
    start = f"start-{os.environ['TORCHELASTIC_RESTART_COUNT']}-of-{total}"
    store = dist.PrefixStore(start, store)  # type: ignore[attr-defined]
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=number, world_size=total, timeout=PATIENCE)


def _explain(error: RuntimeError) -> None:
    """Raise what the user should read instead of an error of torch's, if it is one that other processes bring."""
    if isinstance(error, dist.DistError) or "gloo" in str(error):
        raise LostProcessError(
            f"process {rank()} of {count()} stops, since another one no longer answers; to go on from the last "
            "checkpoint, start the same command with --resume"
        ) from error
    if "finished reduction" in str(error):
        raise ConfigError(
            "the network has parameters that no loss reaches, and several processes would wait for their gradients; "
            "set their requires_grad to False, or train in one process"
        ) from error


def count() -> int:
    """How many processes work on the run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Which of them this one is, from 0 on."""
    return dist.get_rank() if count() > 1 else 0


def is_first() -> bool:
    """Whether this is the process that reads and writes the run directory, and prints."""
    return rank() == 0


def restarted() -> bool:
    """Whether torchrun starts the processes again, after one of them failed."""
    return _started_by_torchrun() and os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"


def own_device(device: torch.device) -> torch.device:
    """The device of this process: of several GPUs its own."""
    if count() == 1 or device.type == "cpu":
        return device
    if device.type != "cuda":
        raise ConfigError(f"--device {device}: several processes work on CPUs or CUDA GPUs only; use --device cpu")
    number, there = _local_rank(), torch.cuda.device_count()
    if number >= there:
        raise ConfigError(f"there are {there} GPUs and more processes; start torchrun with --nproc-per-node {there}")
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def refuse_too_many(batch_size: int) -> None:
    """Raise ConfigError unless every process gets a labeled image."""
    if batch_size < count():
        raise ConfigError(
            f"--batch-size {batch_size} cannot be divided over {count()} processes; start at most {batch_size}"
        )


# --- what all must agree on ---------------------------------------------------------------------------------


def together(work: Callable[[], T]) -> T:
    """`work()` on every process; if it fails on one of them, it fails on all, and the first process says why."""
    if count() == 1:
        return work()
    result, failure = None, None
    try:
        result = work()
    except (RankingMatchError, OSError) as error:
        failure = error
    failures: list[Exception | None] = [None] * count()
    dist.all_gather_object(failures, failure)
    for said in failures:
        if said is not None:
            raise said if is_first() else SystemExit(2)
    return result  # type: ignore[return-value]


def from_first(work: Callable[[], T]) -> T:
    """`work()` on the first process, its result on all."""
    if count() == 1:
        return work()
    result = [together(lambda: work() if is_first() else None)]
    dist.broadcast_object_list(result, src=0)
    return result[0]  # type: ignore[return-value]


def first_of_machine_first(work: Callable[[], T]) -> T:
    """`work()` on one process of each machine, then on the others: they find what the first has downloaded."""
    if count() == 1:
        return work()
    result = together(lambda: work() if _local_rank() == 0 else None)
    return together(lambda: work() if result is None else result)


def any_of(*said: bool) -> tuple[bool, ...]:
    """What at least one process says."""
    if count() == 1:
        return said
    votes = torch.tensor(said, dtype=torch.uint8)
    dist.all_reduce(votes, dist.ReduceOp.MAX)
    return tuple(bool(vote) for vote in votes)


def _local_rank() -> int:
    return int(os.environ["LOCAL_RANK"])


# --- rows ---------------------------------------------------------------------------------------------------


def own_rows(rows: Any) -> Any:
    """Every n-th row of an array or tensor: this process's share. Fewer rows than processes are not divided."""
    return rows[rank() :: count()] if len(rows) >= count() else rows


def gathered(own: Tensor, total: int) -> Tensor:
    """The `total` rows of which every process has its own: the same on all processes, with gradient."""
    if count() == 1 or total < count():
        return own
    whole: Tensor = _Gather.apply(own, total)  # type: ignore[no-untyped-call]
    return whole


def scattered(whole: Tensor) -> Tensor:
    """`own_rows` of a tensor that is the same on all processes, with gradient."""
    if count() == 1 or len(whole) < count():
        return whole
    own: Tensor = _Scatter.apply(whole)  # type: ignore[no-untyped-call]
    return own


def _all_rows(own: Tensor, total: int) -> Tensor:
    """Row i is with process i mod n, at place i div n."""
    most = -(-total // count())
    sent = own.new_zeros(most, *own.shape[1:])
    sent[: len(own)] = own
    received = [torch.empty_like(sent) for _ in range(count())]
    dist.all_gather(received, sent)
    return torch.stack(received, 1).flatten(0, 1)[:total]


class _Gather(torch.autograd.Function):
    """Own rows → all rows. All processes have the same loss, so each takes its rows of the gradient.

    Times n, since DDP divides the sum over the processes by n.
    """

    @staticmethod
    def forward(ctx: Any, own: Tensor, total: int) -> Tensor:
        return _all_rows(own, total)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return own_rows(gradients[0]) * count(), None


class _Scatter(torch.autograd.Function):
    """All rows → own rows: `_Gather` the other way round."""

    @staticmethod
    def forward(ctx: Any, whole: Tensor) -> Tensor:
        ctx.total = len(whole)
        return own_rows(whole).clone()  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _all_rows(gradients[0] / count(), ctx.total)


# --- models -------------------------------------------------------------------------------------------------


def replicated(objective: nn.Module) -> nn.Module:
    """The module under DDP, which averages gradients over the processes; itself on one process."""
    return objective if count() == 1 else DistributedDataParallel(objective)


@torch.no_grad()
def average_statistics(model: nn.Module) -> None:
    """Average a model's floating-point buffers over the processes: BatchNorm's running statistics, of their own rows.

    In double precision, so that what is the same everywhere stays as it is.
    """
    buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    if count() == 1 or not buffers:
        return
    flat = torch.cat([buffer.double().flatten() for buffer in buffers])
    dist.all_reduce(flat)
    for buffer, values in zip(buffers, (flat / count()).split([buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(values.view_as(buffer))
