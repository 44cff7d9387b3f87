"""What FixMatch and its relatives share: three views pass through the network before their losses are computed."""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.core.errors import ConfigError, setting
from rankingmatch.core.options import option
from rankingmatch.losses import masked_cross_entropy
from rankingmatch.methods.passes import ViewOutputs, WeakPass, view_outputs
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, Task
from rankingmatch.methods.rebalancing import REMEDIES, Rebalance


@dataclass(eq=False)
class ThreeViews(Method):
    """Base class of methods whose `forward` takes the outputs for a labeled, a weak and a strong view, not a model."""

    weak_pass: WeakPass = option(
        "joint",
        "How weak views go through the network: in one pass with the other views, as in FixMatch (joint), or "
        "in a pass of their own without gradients, normalized by BatchNorm's running statistics (running) or "
        "their own (batch).",
    )

    def __call__(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """Compute the losses of a batch."""
        outputs = self.changed(view_outputs(model, batch, self.weak_pass), batch, context)
        losses: Losses = nn.Module.__call__(self, outputs, batch, context)
        total = sum(outputs.extra_losses.values(), start=losses.total)
        return Losses(total, {**losses.parts, **outputs.extra_losses}, losses.pseudo_labels)

    def changed(self, outputs: ViewOutputs, batch: Batch, context: Context) -> ViewOutputs:
        """What `forward` gets instead of the outputs of the network."""
        return outputs


@dataclass(eq=False)
class Rebalanced(ThreeViews):
    """Base class of those that can have a remedy for unbalanced classes.

    It changes the outputs before `forward`, and its own losses are added afterwards.
    """

    rebalance: Rebalance = option(
        "none",
        "Remedy for unbalanced classes: alignment aligns the pseudo-labels with the labels, logit-adjustment "
        "shifts the logits of the labeled loss; the others are named after their papers.",
    )
    rebalance_strength: float | None = option(
        None,
        "Strength of {rebalance}: τ of logit-adjustment (1 by default), λ of debiaspl (0.5), T of daso (1.5), "
        "α of crest (1/3).",
        interval="(0, inf)",
    )

    @property
    def given_labels(self) -> Tensor | None:
        """Labels that the remedy has given to unlabeled images, as in `Method`."""
        return getattr(getattr(self, "remedy", None), "given_labels", None)

    def prepare(self, task: Task) -> None:
        """Make the remedy."""
        kind, strength = REMEDIES[self.rebalance], self.rebalance_strength
        if kind.needs_features and task.features == 0:
            raise ConfigError(
                f"{setting('rebalance')} is {self.rebalance}, which needs features, but this network returns logits "
                "only; let it return (logits, features)"
            )
        if kind.usual_strength is None and strength is not None:
            raise ConfigError(
                f"{setting('rebalance_strength')} is {strength:g}, but {setting('rebalance')} {self.rebalance} has no "
                "strength; remove it"
            )
        self.remedy = kind(task, strength or kind.usual_strength or 0.0)

    def changed(self, outputs: ViewOutputs, batch: Batch, context: Context) -> ViewOutputs:
        """What the remedy makes of the outputs."""
        changed: ViewOutputs = self.remedy(outputs, batch, context)
        return changed


def fixmatch_losses(
    outputs: ViewOutputs,
    labels: Tensor,
    pseudo: PseudoLabels,
    unlabeled_weight: float,
    row_weights: Tensor | None = None,
) -> Losses:
    """L = (1/B) Σ H(label, labeled view) + λ_u (1/μB) Σ w H(pseudo-label, strong view).

    The weights w (μB,) are 1 for confident rows and 0 for others unless `row_weights` are given.
    """
    labeled_ce = F.cross_entropy(outputs.labeled_logits, labels)
    weights = pseudo.confident if row_weights is None else row_weights
    unlabeled_ce = masked_cross_entropy(outputs.strong_logits, pseudo.labels, weights)
    total = labeled_ce + unlabeled_weight * unlabeled_ce
    return Losses(total, {"labeled_ce": labeled_ce, "unlabeled_ce": unlabeled_ce}, pseudo)
