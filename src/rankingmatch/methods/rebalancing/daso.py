"""DASO (Oh et al., 2022): pseudo-labels of frequent classes lean on the similarity to class prototypes."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankingmatch.methods.passes import ViewOutputs, running_statistics_kept
from rankingmatch.methods.protocol import Batch, Context, Task
from rankingmatch.methods.rebalancing.remedy import Remedy, safe_log
from rankingmatch.methods.targets import histogram, last_occurrence

__all__ = ["DASO", "enqueue"]

QUEUE = 256  # features per class
TEMPERATURE = 0.05  # of the similarities
WARM_UP = 0.02  # fraction of training in which only the queue is filled: 5,000 of 250,000 steps
EVERY = 100  # steps over which the pseudo-labels are counted


class DASO(Remedy):
    """q ← (1 - v) q + v q', where q' is the softmax of similarities to prototypes and v = v(q̂) depends on the class.

    v(k) = m_k^(1/T) / max m^(1/T), where m counts the pseudo-labels of the last 100 steps. A prototype is the mean of
    the EMA model's features of the last 256 labeled images of a class. The loss of semantic alignment, H(q' of the weak
    view, q' of the strong view), is added.
    """

    usual_strength: ClassVar[float | None] = 1.5
    needs_features: ClassVar[bool] = True

    def __init__(self, task: Task, strength: float) -> None:
        super().__init__(task, strength)
        self.queue: Tensor = nn.Buffer(torch.zeros(task.classes, QUEUE, task.features))
        self.queued: Tensor = nn.Buffer(torch.zeros(task.classes, dtype=torch.long))  # features so far
        self.counts: Tensor = nn.Buffer(torch.zeros(task.classes, dtype=torch.long))  # in the current 100 steps
        self.last_counts: Tensor = nn.Buffer(torch.ones(task.classes, dtype=torch.long))  # in the 100 steps before

    def forward(self, outputs: ViewOutputs, batch: Batch, context: Context) -> ViewOutputs:
        """Fill the queue; after the warm-up, blend the pseudo-labels and add the alignment loss."""
        with running_statistics_kept(context.teacher.train()), torch.no_grad():
            features = context.teacher(batch.labeled[0]).features
        context.teacher.eval()
        enqueue(self.queue, self.queued, features.to(self.queue.dtype), batch.labels)
        if context.step >= WARM_UP * context.steps:
            outputs = self._blended(outputs)
        self._count(outputs.weak_logits.argmax(1), context.step)
        return outputs

    def _blended(self, outputs: ViewOutputs) -> ViewOutputs:
        assert outputs.weak_features is not None
        weak = self._similarities(outputs.weak_features).softmax(1)
        strong = self._similarities(outputs.strong.features)
        linear = outputs.weak_logits.softmax(1)
        shares = (self.last_counts / self.last_counts.max()) ** (1 / self.strength)
        v = shares[linear.argmax(1)][:, None]
        alignment = -(weak * strong.log_softmax(1)).sum(1).mean()
        blended = safe_log((1 - v) * linear + v * weak)
        return outputs._replace(weak_logits=blended, extra_losses={"alignment": alignment})

    def _similarities(self, features: Tensor) -> Tensor:
        """Cosine similarities (n, classes) to the prototypes, divided by the temperature."""
        prototypes = self.queue.sum(1) / self.queued.clamp(1, QUEUE)[:, None]
        return F.cosine_similarity(features[:, None], prototypes[None], dim=2) / TEMPERATURE

    def _count(self, labels: Tensor, step: int) -> None:
        """Count the pseudo-labels of a batch; after every 100 steps the counts are used."""
        self.counts += histogram(labels, self.task.classes)
        if (step + 1) % EVERY == 0:
            self.last_counts.copy_(self.counts)
            self.counts.zero_()


def enqueue(queue: Tensor, queued: Tensor, features: Tensor, labels: Tensor) -> None:
    """Put features (n, width) into the queues of their classes, in order; each queue keeps the latest.

    `queue` is (classes, size, width) and `queued` (classes,) counts all features so far; both change in place.
    """
    one_hot = labels[:, None] == torch.arange(len(queue), device=labels.device)
    position = (one_hot.cumsum(0) - 1).gather(1, labels[:, None]).squeeze(1)
    slots = labels * queue.shape[1] + (queued[labels] + position) % queue.shape[1]
    queue.view(-1, queue.shape[2])[slots] = features[last_occurrence(slots)]
    queued += one_hot.sum(0)
