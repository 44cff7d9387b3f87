"""RankingMatch (Tran et al., 2021): FixMatch plus a ranking loss that pulls outputs of the same class together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.core.options import option
from rankingmatch.core.schedule import linear_ramp
from rankingmatch.losses import (
    batch_all_triplet,
    batch_hard_triplet,
    batch_mean_triplet,
    contrastive,
)
from rankingmatch.losses.ranking import Similarity, over_processes
from rankingmatch.methods import shared_options
from rankingmatch.methods.fixmatch import fixmatch_losses
from rankingmatch.methods.passes import WeakPass, view_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, Task
from rankingmatch.methods.rebalancing import Rebalance, make_remedy
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
    ranking_ramp: float = option(
        0.0, "Fraction of training over which λ_r increases linearly from 0; the paper has none.", interval="[0, 1]"
    )
    margin: float = option(0.5, "m: margin of the triplet losses.", interval="[0, inf)", used_by=TRIPLETS)
    soft_margin: bool = option(True, "f: softplus (soft margin) instead of the hinge.", used_by=TRIPLETS)
    squared: bool = option(False, "d: squared Euclidean distance instead of the Euclidean distance.", used_by=TRIPLETS)
    true_mean: bool = option(
        False,
        "BatchMean: divide by the numbers of positives and negatives instead of |C| as in Eq. 6.",
        used_by=("bm",),
    )
    true_triplets: bool = option(
        False,
        "BatchHard: require another image as the positive; an anchor without one contributes 0. By default "
        "the anchor may be its own positive, at distance 0, as in Eq. 5.",
        used_by=("bh",),
    )
    temperature: float = option(0.2, "T: temperature of the contrastive loss.", interval="(0, inf)", used_by=("ct",))
    similarity: Similarity = option(
        "cosine",
        "Contrastive: cosine, as in SimCLR, or dot product, which is unbounded without {l2_normalize}.",
        used_by=("ct",),
    )
    l2_normalize: bool = option(True, "L2-normalize the vectors that are ranked.")
    rank_on: Literal["logits", "features"] = option(
        "logits", "C: rank the logits, as in the paper, or the features, which are the input of the head."
    )
    rank_all: bool = option(False, "Rank all unlabeled images, not only the confident ones.")
    weak_pass: WeakPass = shared_options.weak_pass()
    skip_unsure: bool = shared_options.skip_unsure()
    rebalance: Rebalance = shared_options.rebalance()
    rebalance_strength: float | None = shared_options.rebalance_strength()

    def prepare(self, task: Task) -> None:
        """Check that the network returns what is to be ranked, and make the remedy."""
        shared_options.skip_threshold(self.skip_unsure, self.weak_pass, self.threshold, self.rebalance)
        self.remedy = make_remedy(self.rebalance, self.rebalance_strength, task)
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
        outputs = self.remedy(view_outputs(model, batch, self.weak_pass, skip_below), batch, context)
        pseudo = pseudo_label(outputs.weak_logits, self.threshold)
        losses = fixmatch_losses(outputs, batch.labels, pseudo, self.unlabeled_weight)
        labeled_rank = self._rank(self._ranked(outputs.labeled), batch.labels)
        confident = None if self.rank_all else pseudo.confident
        unlabeled_rank = self._rank(self._ranked(outputs.strong), pseudo.labels, confident)
        weight = self.ranking_weight * linear_ramp(context.step, context.steps, self.ranking_ramp)
        total = losses.total + weight * (labeled_rank + unlabeled_rank)
        parts = {**losses.parts, "labeled_rank": labeled_rank, "unlabeled_rank": unlabeled_rank}
        return Losses(total, parts, pseudo)

    def _ranked(self, output: Output) -> Tensor:
        """The rows to rank: logits or features."""
        return output.logits if self.rank_on == "logits" else output.features

    def _rank(self, rows: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        """L^Rank over the rows C of the mask: the loss that `ranking` names, or the sum of two."""
        losses = [self._loss(kind, rows, labels, mask) for kind in self.ranking.split("+")]
        return torch.stack(losses).sum()

    def _loss(self, kind: str, rows: Tensor, labels: Tensor, mask: Tensor | None) -> Tensor:
        if kind == "ct":
            return over_processes(
                contrastive,
                rows,
                labels,
                temperature=self.temperature,
                l2_normalize=self.l2_normalize,
                similarity=self.similarity,
                mask=mask,
            )
        own = {"bm": {"true_mean": self.true_mean}, "bh": {"true_triplets": self.true_triplets}, "ba": {}}[kind]
        return over_processes(
            TRIPLET_LOSSES[kind],
            rows,
            labels,
            margin=self.margin,
            soft_margin=self.soft_margin,
            squared=self.squared,
            l2_normalize=self.l2_normalize,
            mask=mask,
            **own,
        )
