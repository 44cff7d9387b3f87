"""Mean Teacher (Tarvainen and Valpola, 2017): consistency with the predictions of the EMA model."""

from torch import nn
from torch.nn import functional as F

from rankingmatch.methods.passes import joint_logits, mean_probabilities
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, register_method, shared


@register_method("mean-teacher", preset={"mu": 1})
class MeanTeacher(Method):
    """Squared difference between the softmax of the student and of the EMA model, each for its own weak view."""

    reference = "Tarvainen 2017"
    good_for = "a baseline without strong augmentation"
    row = ("weak", "", "squared L2 to the EMA model")
    unlabeled_views = ("weak", "weak")
    unlabeled_weight: float = shared("unlabeled_weight", 50.0)
    ramp: float = shared("ramp")

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_s + λ_u(s) (1/μBC) Σ ‖q - q_teacher‖²; the teacher has no gradient."""
        for_student, for_teacher = batch.unlabeled
        # Normalized by its batch, like the student: the running statistics belong to other weights.
        targets = mean_probabilities(context.teacher.train(), [for_teacher])
        context.teacher.eval()
        labeled, student = joint_logits(model, *batch.labeled, for_student)
        labeled_ce = F.cross_entropy(labeled, batch.labels)
        difference = F.mse_loss(student.softmax(1), targets)
        total = labeled_ce + self.unlabeled_weight * context.ramp(self.ramp) * difference
        return Losses(total, {"labeled_ce": labeled_ce, "difference": difference})
