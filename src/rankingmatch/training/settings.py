"""The settings of training that all methods share."""

from dataclasses import dataclass
from typing import Literal

from rankingmatch.core.options import option

__all__ = ["TrainSettings"]

IMAGES_PER_EPOCH = 2**16


@dataclass(frozen=True)
class TrainSettings:
    """The training protocol that all methods share."""

    epochs: float | None = option(
        None,
        "Length of training in epochs of 65,536 labeled images (1024 steps at B = 64).",
        interval="(0, inf)",
    )
    steps: int | None = option(None, "S: length of training in steps, instead of {epochs}.", interval="[1, inf)")
    stop_after: int | None = option(None, "Stop after N steps of the S-step schedule.", interval="[1, inf)")
    batch_size: int = option(64, "B: labeled images per step.", interval="[1, 65536]")
    mu: int = option(7, "μ: unlabeled images per labeled image.", interval="[1, 1024]")
    learning_rate: float = option(0.03, "η: initial learning rate; it decays as η cos(7πs/16S).", interval="(0, inf)")
    backbone_learning_rate: float | None = option(
        None,
        "Initial learning rate of the network without its head, lower if it is pretrained; 0 freezes its weights. "
        "{learning_rate} by default.",
        interval="[0, inf)",
    )
    optimizer: Literal["sgd", "adamw"] = option(
        "sgd", "SGD with Nesterov momentum, as in the paper, or AdamW, which suits fine-tuning."
    )
    momentum: float = option(0.9, "Nesterov momentum of SGD; β1 of AdamW.", interval="[0, 1)")
    weight_decay: float = option(0.0005, "Weight decay of convolution and linear weights.", interval="[0, inf)")
    ema_decay: float = option(
        0.999, "Decay of the moving average of the weights, which is evaluated and saved.", interval="[0, 1)"
    )
    trained_share: float = option(
        1.0,
        "Share of the trained weights in the final ones; the rest are those that training started from. Less than 1 "
        "keeps more of what a pretrained network knows.",
        interval="(0, 1]",
    )
    final_head: Literal["trained", "fitted"] = option(
        "trained",
        "The head at the end: as trained, or fitted once more as with {initial_head} fitted, to the features that "
        "training has improved; only if the method uses unlabeled images.",
    )
    seed: int = option(
        0,
        "Random seed: determines the labels, initial weights, batches and views; a fold is a seed.",
        interval="[0, inf)",
    )
    precision: Literal["float32", "bfloat16", "float16", "auto"] = option(
        "float32",
        "Precision of the network's computation in training; losses always use float32. bfloat16 is faster where the "
        "hardware supports it, and auto uses it there; float16, with a gradient scaler, is for GPUs that lack it.",
    )
    evaluate_every: int | None = option(
        None,
        "Steps between evaluations; one epoch by default, and at least 20 evaluations per run.",
        interval="[1, inf)",
    )
    log_every: int = option(10, "Steps over which the displayed losses are averaged.", interval="[1, inf)")

    @property
    def total_steps(self) -> int:
        """S, the length of the schedule."""
        if self.steps is not None:
            return self.steps
        epochs = 128.0 if self.epochs is None else self.epochs
        return max(1, round(epochs * self.steps_per_epoch))

    @property
    def last_step(self) -> int:
        """The step at which training ends: S, or earlier with `stop_after`."""
        return min(self.total_steps, self.stop_after or self.total_steps)

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which 2^16 labeled images are seen."""
        return max(1, IMAGES_PER_EPOCH // self.batch_size)

    @property
    def evaluation_interval(self) -> int:
        """Steps between evaluations."""
        if self.evaluate_every is not None:
            return self.evaluate_every
        return min(self.steps_per_epoch, max(1, self.total_steps // 20))
