"""RealMix (Nair et al., 2019): MixMatch with strong views, without easy labeled images and unconfident guesses."""

from torch import nn

from rankingmatch.core.options import option
from rankingmatch.core.schedule import Annealing, tsa_threshold
from rankingmatch.losses import masked_brier, tsa_cross_entropy
from rankingmatch.methods.mixing import mixed_batch
from rankingmatch.methods.passes import mean_probabilities
from rankingmatch.methods.protocol import Batch, Context, Losses, Method, PseudoLabels, register_method, shared
from rankingmatch.methods.targets import sharpen


@register_method("realmix", preset={"mu": 1})
class RealMix(Method):
    """Annealed cross-entropy on mixed labeled rows + λ_u · masked squared error on mixed unlabeled rows."""

    reference = "Nair 2019"
    good_for = "unlabeled images of other classes"
    row = ("weak, strong", "sharpening, threshold", "training signal annealing (TSA)")
    unlabeled_weight: float = shared("unlabeled_weight", 75.0)
    ramp: float = shared("ramp", 0.125)
    guesses: int = shared("guesses")
    strong_views: int = option(1, "Strong views trained on the label guessed from the weak ones.", interval="[0, 64]")
    sharpening: float = shared("sharpening")
    alpha: float = shared("alpha")
    tsa: Annealing = shared("tsa", "linear")
    dropped: float = option(
        0.1, "Fraction of mixed unlabeled images to ignore: the least confident.", interval="[0, 1)"
    )

    @property
    def unlabeled_views(self) -> tuple[str, ...]:
        """K weak views, which give the guess, and the strong ones."""
        return ("weak",) * self.guesses + ("strong",) * self.strong_views

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        """L = L_x^TSA + λ_u · ramp · L_u; q = Sharpen(1/K Σ_k softmax(weak view k), T) is the target of all views."""
        guess = sharpen(mean_probabilities(model, batch.unlabeled[: self.guesses]), self.sharpening)
        labeled_logits, known, logits, targets = mixed_batch(model, batch, guess, self.alpha, context.generator)
        threshold = tsa_threshold(self.tsa, context.step, context.steps, guess.shape[1])
        labeled_ce = tsa_cross_entropy(labeled_logits, batch.labels, threshold, known)
        # All rows but the ⌊dropped · n⌋ whose largest probability is smallest.
        rank = logits.detach().softmax(1).amax(1).argsort(stable=True).argsort()
        kept = rank >= int(self.dropped * len(rank))
        unlabeled_l2 = masked_brier(logits, targets, kept)
        total = labeled_ce + self.unlabeled_weight * context.ramp(self.ramp) * unlabeled_l2
        # An image counts as confident if one of its rows is kept.
        confident = kept.unflatten(0, (len(batch.unlabeled), -1)).any(0)
        parts = {"labeled_ce": labeled_ce, "unlabeled_l2": unlabeled_l2}
        return Losses(total, parts, PseudoLabels(guess.argmax(1), confident))
