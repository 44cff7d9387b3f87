"""Mean Teacher (Tarvainen and Valpola, 2017): consistency with the predictions of the EMA model."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn
from torch.nn import functional as F

from rankingmatch.core.schedule import linear_ramp
from rankingmatch.methods import shared_options
from rankingmatch.methods.passes import joint_logits, mean_probabilities
from rankingmatch.methods.protocol import Batch, Context, Losses, Method

__all__ = ["MeanTeacher"]


@dataclass(eq=False)
class MeanTeacher(Method):
    """Squared difference between the softmax of the student and of the EMA model, each for its own weak view."""

    unlabeled_views: ClassVar[tuple[str, ...]] = ("weak", "weak")
    unlabeled_weight: float = shared_options.unlabeled_weight(50.0)
    ramp: float = shared_options.ramp(0.4)

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u(s) (1/μBC) Σ ‖q - q_teacher‖²; the teacher has no gradient."""
        (labeled,), (for_student, for_teacher) = batch.labeled, batch.unlabeled
        # Normalized by its batch, like the student: the running statistics belong to other weights.
        targets = mean_probabilities(context.teacher.train(), [for_teacher])
        context.teacher.eval()
        labeled_logits, student_logits = joint_logits(model, labeled, for_student)
        labeled_ce = F.cross_entropy(labeled_logits, batch.labels)
        difference = F.mse_loss(student_logits.softmax(1), targets)
        weight = self.unlabeled_weight * linear_ramp(context.step, context.steps, self.ramp)
        total = labeled_ce + weight * difference
        return Losses(total, {"labeled_ce": labeled_ce, "difference": difference})
