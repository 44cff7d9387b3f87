"""Training one run on several processes, as torchrun starts them. With one process, all of this is a no-op.

Each process augments every n-th row of a batch and passes it through the network. The outputs are gathered, so that
a method sees the whole batch on every process and computes the same losses there. The gradient of a row returns to
the process that owns the row, multiplied by the number of processes, because DDP divides the sum by it.
"""

import gc
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rankingmatch.core.errors import (
    ConfigError,
    DivergedError,
    Interrupted,
    LostProcessError,
    RankingMatchError,
    setting,
)

T = TypeVar("T")

# One process of a machine may decode a large folder while the others wait. A dead process is noticed at once.
TIMEOUT = timedelta(hours=2)
_ALONE = ContextVar("_ALONE", default=False)


@contextmanager
def process_group() -> Iterator[None]:
    """Connect the processes that torchrun has started; only the first one logs."""
    if not _started_by_torchrun() or os.environ["WORLD_SIZE"] == "1":
        yield
        return
    import torch.distributed.nn  # before there is a group, which its default arguments would keep forever
    from torch.distributed.rendezvous import rendezvous  # not in every build of torch

    # torchrun's store survives a restart and keeps the addresses of dead processes: each start has its own keys.
    store, number, total = next(rendezvous("env://"))
    start = f"start-{os.environ['TORCHELASTIC_RESTART_COUNT']}-of-{total}"
    store = dist.PrefixStore(start, store)  # type: ignore[attr-defined]
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=number, world_size=total, timeout=TIMEOUT)
    if not is_first():
        logging.disable(logging.WARNING)
    try:
        yield
    except (DivergedError, Interrupted):  # raised on all processes at once
        if is_first():
            raise
        raise SystemExit(1) from None
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error):
            raise LostProcessError(
                f"process {rank()} of {world_size()} stopped because another one no longer responds; start all "
                f"processes again with {setting('resume')} to continue from the last checkpoint"
            ) from error
        if "finished reduction" in str(error):
            raise ConfigError(
                "the network has parameters that receive no gradient, which several processes would wait for; set "
                "their requires_grad to False, or train with one process"
            ) from error
        raise
    finally:
        logging.disable(logging.NOTSET)
        _disconnect()


def _started_by_torchrun() -> bool:
    return dist.is_available() and dist.is_torchelastic_launched()


def _disconnect() -> None:
    """End the group and its threads: one that still frees a tensor while Python exits would abort the process.

    The threads end with the last reference to the group. DDP has one, and is itself part of a cycle of references; an
    error has the variables of the functions that it has left.
    """
    error = sys.exception()
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__
    gc.collect()
    dist.destroy_process_group()


def world_size() -> int:
    """The number of processes that train the run."""
    several = dist.is_available() and dist.is_initialized() and not _ALONE.get()
    return dist.get_world_size() if several else 1


@contextmanager
def alone() -> Iterator[None]:
    """Within, this process trains something of its own, and the others do not take part."""
    token = _ALONE.set(True)
    try:
        yield
    finally:
        _ALONE.reset(token)


def rank() -> int:
    """The number of this process, counted from 0."""
    return dist.get_rank() if world_size() > 1 else 0


def local_rank() -> int:
    """The number of this process among those of its machine."""
    return int(os.environ["LOCAL_RANK"])


def is_first() -> bool:
    """Whether this process reads and writes the run directory, and prints."""
    return rank() == 0


def restarted_by_torchrun() -> bool:
    """Whether torchrun has restarted the processes after one of them failed."""
    return _started_by_torchrun() and os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"


def require_enough_images(batch_size: int) -> None:
    """Raise ConfigError unless every process gets a labeled image."""
    if batch_size < world_size():
        raise ConfigError(
            f"{setting('batch_size')} is {batch_size}, too few for {world_size()} processes; start at most {batch_size}"
        )


# --- agreement ----------------------------------------------------------------------------------------------


def on_all_processes(work: Callable[[], T]) -> T:
    """Call `work()` on every process; if it fails on one, it fails on all, and the first process raises the reason."""
    if world_size() == 1:
        return work()
    result, failure = None, None
    try:
        result = work()
    except (RankingMatchError, OSError) as error:
        failure = error
    failures: list[Exception | None] = [None] * world_size()
    dist.all_gather_object(failures, failure)
    for reason in failures:
        if reason is not None:
            raise reason if is_first() else SystemExit(2)
    return result  # type: ignore[return-value]


def from_first_process(work: Callable[[], T]) -> T:
    """The result of `work()` on the first process, on all processes."""
    if world_size() == 1:
        return work()
    result = [on_all_processes(lambda: work() if is_first() else None)]
    dist.broadcast_object_list(result, src=0)
    return result[0]  # type: ignore[return-value]


def first_on_each_machine(work: Callable[[], T]) -> T:
    """Call `work()` on one process of each machine, then on the others, which reuse what it has downloaded."""
    if world_size() == 1:
        return work()
    result = on_all_processes(lambda: work() if local_rank() == 0 else None)
    return on_all_processes(lambda: work() if result is None else result)


def any_process(*flags: bool) -> tuple[bool, ...]:
    """Each flag: whether it is true on at least one process."""
    if world_size() == 1:
        return flags
    votes = torch.tensor(flags, dtype=torch.uint8)
    dist.all_reduce(votes, dist.ReduceOp.MAX)
    return tuple(bool(vote) for vote in votes)


# --- rows and sums, with gradient ------------------------------------------------------------------------------


def own_rows(rows: Any) -> Any:
    """Every n-th row of an array or tensor: the share of this process. Fewer rows than processes are not divided."""
    return rows[rank() :: world_size()] if len(rows) >= world_size() else rows


def gathered(own: Tensor, total: int) -> Tensor:
    """All `total` rows, of which every process owns a share: the same on all processes, with gradient.

    All processes have the same loss, so each takes its own rows of the gradient, multiplied by n.
    """
    if world_size() == 1 or total < world_size():
        return own
    return _linear(own, lambda rows: _all_rows(rows, total), lambda gradient: own_rows(gradient) * world_size())


def scattered(whole: Tensor) -> Tensor:
    """`own_rows` of a tensor that is the same on all processes, with gradient: the inverse of `gathered`."""
    if world_size() == 1 or len(whole) < world_size():
        return whole
    total = len(whole)
    return _linear(
        whole, lambda rows: own_rows(rows).clone(), lambda gradient: _all_rows(gradient / world_size(), total)
    )


def shared(whole: Tensor) -> Tensor:
    """A tensor that is the same on all processes, each of which computes a part of a sum from it.

    The gradient is the sum of those of all parts.
    """
    return whole if world_size() == 1 else _linear(whole, lambda same: same.view_as(same), _total)


def summed(part: Tensor) -> Tensor:
    """The sum of the parts of all processes: the same on all of them. Each part has the gradient of the sum."""
    return part if world_size() == 1 else _linear(part, _total, lambda gradient: gradient)


def _all_rows(own: Tensor, total: int) -> Tensor:
    """Row i belongs to process i mod n, at position i div n."""
    most = -(-total // world_size())
    sent = own.new_zeros(most, *own.shape[1:])
    sent[: len(own)] = own
    received = [torch.empty_like(sent) for _ in range(world_size())]
    dist.all_gather(received, sent)
    return torch.stack(received, 1).flatten(0, 1)[:total]


def _total(part: Tensor) -> Tensor:
    total = part.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


def _linear(tensor: Tensor, forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor], Tensor]) -> Tensor:
    """`forward` of a tensor, and `backward` of its gradient."""
    return _Linear.apply(tensor, forward, backward)  # type: ignore[no-any-return, no-untyped-call]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, forward: Callable[..., Tensor], backward: Callable[..., Tensor]) -> Tensor:
        ctx.of_gradient = backward
        return forward(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.of_gradient(gradients[0]), None, None


# --- models -------------------------------------------------------------------------------------------------


def replicated(objective: nn.Module) -> nn.Module:
    """The module wrapped in DDP, which averages gradients over the processes; unchanged with one process."""
    return objective if world_size() == 1 else DistributedDataParallel(objective)


@torch.no_grad()
def average_statistics(model: nn.Module) -> None:
    """Average a model's floating-point buffers over the processes: BatchNorm's running statistics, of their own rows.

    In double precision, so that equal values stay exactly equal.
    """
    buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    if world_size() == 1 or not buffers:
        return
    flat = torch.cat([buffer.double().flatten() for buffer in buffers])
    dist.all_reduce(flat)
    averages = (flat / world_size()).split([buffer.numel() for buffer in buffers])
    for buffer, values in zip(buffers, averages, strict=True):
        buffer.copy_(values.view_as(buffer))
