"""RankingMatch (Tran et al., 2021): FixMatch plus a ranking loss that pulls outputs of the same class together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.core.options import option
from rankingmatch.losses import (
    batch_all_triplet,
    batch_hard_triplet,
    batch_mean_triplet,
    contrastive,
)
from rankingmatch.methods import shared_options
from rankingmatch.methods.fixmatch import fixmatch_losses
from rankingmatch.methods.passes import WeakPass, view_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, Task
from rankingmatch.methods.targets import pseudo_label
from rankingmatch.networks import Output

__all__ = ["RankingMatch"]

TRIPLET_LOSSES: dict[str, Callable[..., Tensor]] = {
    "bm": batch_mean_triplet,
    "bh": batch_hard_triplet,
    "ba": batch_all_triplet,
}
TRIPLETS = tuple(TRIPLET_LOSSES)


@dataclass(eq=False)
class RankingMatch(Method):
    """Eq. (1): L_s^CE + λ_u L_u^CE + λ_r (L_s^Rank + L_u^Rank).

    `ranking` selects the ranking loss: BatchMean, BatchHard or BatchAll triplet, Contrastive, or the sum of BatchMean
    and Contrastive that the paper leaves to future work.
    """

    ranking: Literal["bm", "bh", "ba", "ct", "bm+ct"] = "bm"
    threshold: float = shared_options.threshold()
    unlabeled_weight: float = shared_options.unlabeled_weight()
    ranking_weight: float = option(1.0, "λ_r: weight of the ranking losses.", interval="[0, inf)")
    margin: float = option(0.5, "m: margin of the triplet losses.", interval="[0, inf)", used_by=TRIPLETS)
    soft_margin: bool = option(True, "f: softplus (soft margin) instead of the hinge.", used_by=TRIPLETS)
    squared: bool = option(False, "d: squared Euclidean distance instead of the Euclidean distance.", used_by=TRIPLETS)
    true_mean: bool = option(
        False,
        "BatchMean: divide by the numbers of positives and negatives instead of |C| as in Eq. 6.",
        used_by=("bm",),
    )
    temperature: float = option(0.2, "T: temperature of the contrastive loss.", interval="(0, inf)", used_by=("ct",))
    l2_normalize: bool = option(True, "L2-normalize the vectors that are ranked.")
    rank_on: Literal["logits", "features"] = option(
        "logits", "C: rank the logits, as in the paper, or the features that the head takes."
    )
    rank_all: bool = option(False, "Rank all unlabeled images, not only the confident ones.")
    weak_pass: WeakPass = shared_options.weak_pass()
    skip_unsure: bool = shared_options.skip_unsure()

    def prepare(self, task: Task) -> None:
        """Check that the network returns what is to be ranked."""
        shared_options.skip_threshold(self.skip_unsure, self.weak_pass, self.threshold)
        if self.skip_unsure and self.rank_all:
            raise ConfigError(
                f"{setting('rank_all')} needs the images that {setting('skip_unsure')} skips; give one of them"
            )
        if self.rank_on == "features" and task.features == 0:
            raise ConfigError(
                f"{setting('rank_on')} is features, but this network returns logits only; let it return "
                "(logits, features)"
            )

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """Algorithm 1."""
        skip_below = shared_options.skip_threshold(self.skip_unsure, self.weak_pass, self.threshold)
        outputs = view_outputs(model, batch, self.weak_pass, skip_below)
        pseudo = pseudo_label(outputs.weak_logits, self.threshold)
        losses = fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight)
        labeled_rank = self._rank(self._ranked(outputs.labeled), batch.labels)
        unlabeled_rank = self._rank(*self._ranked_rows(outputs.strong, pseudo))
        total = losses.total + self.ranking_weight * (labeled_rank + unlabeled_rank)
        parts = {**losses.parts, "labeled_rank": labeled_rank, "unlabeled_rank": unlabeled_rank}
        return Losses(total, parts, pseudo)

    def _ranked(self, output: Output) -> Tensor:
        """The rows to rank: logits or features."""
        return output.logits if self.rank_on == "logits" else output.features

    def _ranked_rows(self, output: Output, pseudo: PseudoLabels) -> tuple[Tensor, Tensor]:
        """The rows C and their labels for the unlabeled ranking loss."""
        rows = self._ranked(output)
        if self.rank_all:
            return rows, pseudo.labels
        return rows[pseudo.confident], pseudo.labels[pseudo.confident]

    def _rank(self, rows: Tensor, labels: Tensor) -> Tensor:
        """L^Rank: the loss that `ranking` names, or the sum of two."""
        losses = [self._loss(kind, rows, labels) for kind in self.ranking.split("+")]
        return torch.stack(losses).sum()

    def _loss(self, kind: str, rows: Tensor, labels: Tensor) -> Tensor:
        if kind == "ct":
            return contrastive(rows, labels, temperature=self.temperature, l2_normalize=self.l2_normalize)
        only_mean = {"true_mean": self.true_mean} if kind == "bm" else {}
        return TRIPLET_LOSSES[kind](
            rows,
            labels,
            margin=self.margin,
            soft_margin=self.soft_margin,
            squared=self.squared,
            l2_normalize=self.l2_normalize,
            **only_mean,
        )
