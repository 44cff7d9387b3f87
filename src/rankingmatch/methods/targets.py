"""The targets of unlabeled images: pseudo-labels, sharpened and aligned distributions; and what they are made of."""

import torch
from torch import Tensor, nn

from rankingmatch.core.devices import full_precision
from rankingmatch.core.schedule import statistics_momentum
from rankingmatch.losses import l2_normalized
from rankingmatch.methods.protocol import PseudoLabels, Task

RECENT_BATCHES = 32  # over which the mean prediction for an alignment is taken
AVERAGED_BATCHES = 128  # over which mean predictions are taken for an alignment


def pseudo_label(logits: Tensor, threshold: float | Tensor) -> PseudoLabels:
    """Take the most probable class of each row (n, classes), confident if its probability is at least the threshold τ.

    There is one threshold, or one for each class (classes,).
    """
    probability, label = logits.softmax(1).max(1)
    return PseudoLabels(label, probability >= (threshold[label] if isinstance(threshold, Tensor) else threshold))


def align_distribution(probabilities: Tensor, wanted: Tensor, seen: Tensor) -> Tensor:
    """Distribution alignment: p · wanted / seen, each row (n, classes) normalized to sum 1.

    `wanted` is the distribution of the labels (classes,), `seen` the mean prediction of the model.
    """
    aligned = probabilities * (wanted / seen.clamp(min=1e-6))
    return aligned / aligned.sum(1, keepdim=True).clamp(min=torch.finfo(aligned.dtype).tiny)


def sharpen(probabilities: Tensor, temperature: float) -> Tensor:
    """Sharpen distributions (n, classes): p^(1/T) / Σ p^(1/T). A temperature T above 1 smooths them."""
    # A softmax of logarithms neither underflows nor overflows; ln 0 = -∞ gives 0 again.
    return (probabilities.log() / temperature).softmax(1)


def safe_log(probabilities: Tensor) -> Tensor:
    """ln p, finite where p = 0."""
    return probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log()


def histogram(labels: Tensor, classes: int, weights: Tensor | None = None) -> Tensor:
    """Count how often each class occurs among labels (n,), or sum the weights (n,) of its rows: (classes,)."""
    one_hot = labels[:, None] == torch.arange(classes, device=labels.device)
    return (one_hot if weights is None else one_hot * weights[:, None]).sum(0)


def last_occurrence(values: Tensor) -> Tensor:
    """Find the position (n,) of the last entry that has the same value as each entry of integers (n,).

    ``memory[rows] = new[last_occurrence(rows)]`` stores the last of the rows that occur several times, in whatever
    order a device writes them.
    """
    ordered, order = values.sort(stable=True)
    return order[torch.searchsorted(ordered, values, right=True) - 1]


def update_average(average: Tensor, value: Tensor, decay: float) -> None:
    """Update a moving average in place: average ← decay · average + (1 - decay) · value."""
    average.lerp_(value.to(average.dtype), 1 - decay)


def decay_at_length(decay: float | None, steps: int) -> float:
    """The decay that is given, or the one for a run of this length: 1 - the momentum of BatchNorm's statistics."""
    return 1 - statistics_momentum(steps) if decay is None else decay


class LearnedLabels(nn.Module):
    """The last confident label of every unlabeled image, -1 if there was none yet, and how many images have which.

    A label takes one byte, or two from 129 classes on, and a step reads and writes those of its batch only, so that
    the pool may be large. FlexMatch and its relatives have one.

    `labels` is (unlabeled images,), and `counts` (1 + classes,) says how many images have the label -1, 0, ….
    """

    def __init__(self, task: Task) -> None:
        super().__init__()
        smallest = torch.int8 if task.classes <= 128 else torch.int16 if task.classes <= 2**15 else torch.int32
        self.labels: Tensor = nn.Buffer(torch.full((task.unlabeled,), -1, dtype=smallest))
        self.counts: Tensor = nn.Buffer(torch.zeros(1 + task.classes, dtype=torch.long), persistent=False)
        self.recount()
        self.register_load_state_dict_post_hook(lambda module, _: module.recount())  # type: ignore[no-untyped-call]

    def recount(self) -> None:
        """Count the labels, also those that have been read from a checkpoint."""
        self.labels.clamp_(-1, len(self.counts) - 2)  # a damaged file has no other effect
        self.counts.zero_()
        for part in self.labels.split(1 << 20):
            self.counts += torch.bincount(part.long() + 1, minlength=len(self.counts))

    def thresholds(self, tau: float) -> Tensor:
        """T(c) = τ β(c) / (2 - β(c)), β(c) = images with the label c / max(most of a class, those without a label)."""
        beta = self.counts[1:] / self.counts.max()
        return tau * beta / (2 - beta)

    @torch.no_grad()
    def update(self, rows: Tensor, pseudo: PseudoLabels) -> None:
        """Store the confident labels of a batch at `rows` (n,); if a row occurs twice, the later label counts."""
        wanted = 2 * rows + 1
        # All entries of a row store its last confident label, in whatever order a device writes them.
        ordered, order = (2 * rows + pseudo.confident).sort(stable=True)
        last = torch.searchsorted(ordered, wanted, right=True) - 1
        before = self.labels[rows].long()
        after = torch.where(ordered[last] == wanted, pseudo.labels[order[last]], before)
        self.labels[rows] = after.to(self.labels.dtype)
        once = (last_occurrence(rows) == torch.arange(len(rows), device=rows.device)).long()
        self.counts.scatter_add_(0, 1 + after, once).scatter_add_(0, 1 + before, -once)


class Projection(nn.Module):
    """Features (n, width) → L2-normalized embeddings (n, dimensions), by two linear layers.

    It belongs to the method, not to the network: checkpoints contain it, an exported model does not. If the network
    returns logits only, it takes these.
    """

    def __init__(self, task: Task, dimensions: int) -> None:
        super().__init__()
        width = task.features or task.classes
        self.layers = nn.Sequential(nn.Linear(width, width), nn.LeakyReLU(0.1), nn.Linear(width, dimensions))

    def forward(self, features: Tensor) -> Tensor:
        """Compute the embeddings."""
        with full_precision(features.device):
            return l2_normalized(self.layers(features))


@torch.no_grad()
def aligned_with_recent(probabilities: Tensor, recent: Tensor, step: int) -> Tensor:
    """Normalize(q / p̃), where p̃ is the mean prediction for the last batches, including this one.

    `recent` has the mean predictions (batches, classes), initially 0; the row of this step is updated. Rows that are
    still 0 scale p̃, which cancels.
    """
    recent[step % len(recent)] = probabilities.mean(0)
    return align_distribution(probabilities, torch.ones_like(recent[0]), recent.mean(0))
