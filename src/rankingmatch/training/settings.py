"""The settings of training that all methods share."""

from dataclasses import dataclass
from typing import Literal

from rankingmatch.core.options import option

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
        "Initial learning rate of all layers below the head; 0 freezes them. By default, {learning_rate}, or "
        "less if they are pretrained.",
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
        "Interpolate the final weights between the initial ones (0) and the trained ones (1). Below 1, a "
        "pretrained network keeps more of what it knows.",
        interval="[0, 1]",
    )
    final_weights: Literal["trained", "judged"] = option(
        "trained",
        "Final weights: those of {trained_share}, or judged by labeled images that training has not seen: the initial "
        "ones, the trained ones, or their average. Judged needs {initial_head} fitted.",
    )
    final_head: Literal["trained", "fitted"] = option(
        "trained",
        "Final head: as trained, or fitted again, as by {initial_head} fitted, to the features after "
        "training. Fitted needs a method that uses unlabeled images.",
    )
    seed: int = option(
        0,
        "Random seed of the labels, initial weights, batches and views. Each fold of a recipe has its own.",
        interval="[0, inf)",
    )
    precision: Literal["float32", "bfloat16", "float16", "auto"] = option(
        "float32",
        "Precision of the network in training; losses always use float32. auto uses bfloat16 where the "
        "hardware makes it faster; float16, with a gradient scaler, is for GPUs without bfloat16.",
    )
    evaluate_every: int | None = option(
        None,
        "Steps between evaluations. By default one epoch, or a twentieth of a shorter run.",
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
