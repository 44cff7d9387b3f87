"""RankingMatch (Tran et al., 2021): FixMatch plus a ranking loss that pulls outputs of the same class together."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from rankingmatch import losses
from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.core.options import option, options_of
from rankingmatch.methods.passes import ViewOutputs
from rankingmatch.methods.protocol import Batch, Context, Losses, PseudoLabels, Task, register_method, shared
from rankingmatch.methods.rebalancing import Rebalanced
from rankingmatch.networks import Output

RANKING_LOSSES: dict[str, Callable[..., Tensor]] = {
    "bm": losses.batch_mean_triplet,
    "bh": losses.batch_hard_triplet,
    "ba": losses.batch_all_triplet,
    "ct": losses.contrastive,
}
TRIPLETS = ("bm", "bh", "ba")


@register_method(
    "rankingmatch-bm+ct",
    variant="bm+ct",
    ranking_loss="BatchMean + contrastive",
    note="BatchMean + contrastive, future work in the paper",
)
@register_method("rankingmatch-ba", variant="ba", ranking_loss="BatchAll triplet", note="BatchAll triplet")
@register_method("rankingmatch-bh", variant="bh", ranking_loss="BatchHard triplet", note="BatchHard triplet")
@register_method("rankingmatch-ct", variant="ct", ranking_loss="contrastive", note="contrastive")
@register_method("rankingmatch-bm", variant="bm", ranking_loss="BatchMean triplet")
class RankingMatch(Rebalanced):
    """Eq. (1): L_s^CE + λ_u L_u^CE + λ_r (L_s^Rank + L_u^Rank).

    `ranking` selects the ranking loss: BatchMean, BatchHard or BatchAll triplet, Contrastive, or the sum of BatchMean
    and Contrastive that the paper leaves to future work. The options that are used by one of them are its arguments.
    """

    reference = "Tran 2021"
    good_for = "embeddings in which classes are far apart"
    row = ("weak, strong", "threshold", "BatchMean triplet")
    ranking: Literal["bm", "bh", "ba", "ct", "bm+ct"] = "bm"
    threshold: float = shared("threshold")
    unlabeled_weight: float = shared("unlabeled_weight")
    ranking_weight: float = option(1.0, "λ_r: weight of the ranking losses.", interval="[0, inf)")
    ranking_ramp: float = option(0.0, "Fraction of training over which λ_r increases from 0.", interval="[0, 1]")
    margin: float = option(0.5, "m: margin of the triplet losses.", interval="[0, inf)", used_by=TRIPLETS)
    soft_margin: bool = option(True, "f: softplus (soft margin) instead of the hinge.", used_by=TRIPLETS)
    squared: bool = option(False, "d: squared Euclidean distance instead of the Euclidean distance.", used_by=TRIPLETS)
    true_mean: bool = option(
        False, "BatchMean: divide by the numbers of positives and negatives, not by |C| as in Eq. 6.", used_by=("bm",)
    )
    true_triplets: bool = option(
        False,
        "BatchHard: require another image as the positive; an anchor without one contributes 0. By default "
        "the anchor may be its own positive, at distance 0, as in Eq. 5.",
        used_by=("bh",),
    )
    temperature: float = option(0.2, "T: temperature of the contrastive loss.", interval="(0, inf)", used_by=("ct",))
    similarity: losses.Similarity = option(
        "cosine",
        "Contrastive: cosine, as in SimCLR, or dot product, which is unbounded without {l2_normalize}.",
        used_by=("ct",),
    )
    l2_normalize: bool = option(True, "L2-normalize the vectors that are ranked.")
    rank_on: Literal["logits", "features"] = option(
        "logits", "C: rank the logits, as in the paper, or the features, which are the input of the head."
    )
    rank_all: bool = option(False, "Rank all unlabeled images, not only the confident ones.")

    def prepare(self, task: Task) -> None:
        """Check that the network returns what is to be ranked, and give the ranking losses their arguments."""
        super().prepare(task)
        if self.rank_on == "features" and task.features == 0:
            raise ConfigError(
                f"{setting('rank_on')} is features, but this network returns logits only; let it return "
                "(logits, features)"
            )
        self.ranking_losses = []
        for name in self.ranking.split("+"):
            own = {one.name: getattr(self, one.name) for one in options_of(RankingMatch) if name in one.used_by}
            self.ranking_losses.append(partial(RANKING_LOSSES[name], l2_normalize=self.l2_normalize, **own))

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> Losses:
        """Algorithm 1."""
        # Loss elements of labeled images: Eq. (2), and the ranking loss.
        labeled_ce = F.cross_entropy(outputs.labeled_logits, batch.labels)
        labeled_rank = self._rank(outputs.labeled, batch.labels)

        # Loss elements of unlabeled images: pseudo-labels, Eq. (3), and the ranking loss of the strong views.
        confidence, label = outputs.weak.logits.softmax(1).max(1)
        confident = confidence >= self.threshold
        unlabeled_ce = losses.masked_cross_entropy(outputs.strong_logits, label, confident)
        unlabeled_rank = self._rank(outputs.strong, label, None if self.rank_all else confident)

        # The total loss: Eq. (1).
        ranking_weight = self.ranking_weight * context.ramp(self.ranking_ramp)
        total = labeled_ce + self.unlabeled_weight * unlabeled_ce + ranking_weight * (labeled_rank + unlabeled_rank)
        parts = {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce}
        parts |= {"labeled_rank": labeled_rank, "unlabeled_rank": unlabeled_rank}
        return Losses(total, parts, PseudoLabels(label, confident))

    def _rank(self, output: Output, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        """L^Rank of the rows C in the mask, one of Eq. (4) to (7) or the sum of two."""
        rows = output.logits if self.rank_on == "logits" else output.features
        return torch.stack([losses.over_processes(loss, rows, labels, mask=mask) for loss in self.ranking_losses]).sum()
