"""Passes of views through the network: BatchNorm's statistics, gradients, and which rows belong to which view."""

import naive
import pytest
import torch
from lookup import CLASSES, LABELED, LABELS, Lookup, losses_of, prepared, random_model
from tiny import CPU, VIEWS, tiny_settings, tiny_split, tiny_state
from torch import Tensor, nn

from rankingmatch.methods import Batch, Context
from rankingmatch.methods.crmatch import rotations
from rankingmatch.methods.passes import (
    interleaved_logits,
    mean_probabilities,
    perturbed_logits,
    three_views,
)
from rankingmatch.networks import Classifier, Output
from rankingmatch.training.batches import make_batch


class Norm(nn.Module):
    """BatchNorm alone, on 1×1 images."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1, momentum=0.5)

    def forward(self, images: Tensor) -> Output:
        rows = self.norm(images.flatten(1).float())
        return Output(rows, rows)


def images(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.uint8).view(-1, 1, 1, 1)


KNOWN, WEAK, STRONG = images(0, 2), images(10, 30), images(4, 6)


def test_three_views_are_normalized_together_and_the_weak_one_has_no_gradient() -> None:
    model = Norm().train()
    outputs = three_views(model, Batch((KNOWN,), torch.zeros(2, dtype=torch.long), (WEAK, STRONG)))
    for output, values in ((outputs.labeled, (0, 2)), (outputs.weak, (10, 30)), (outputs.strong, (4, 6))):
        expected = [(value - 52 / 6) / 10.045 for value in values]
        assert output.logits.flatten().tolist() == pytest.approx(expected, rel=1e-3)
        assert output.logits.requires_grad == (output is not outputs.weak)
    assert model.norm.running_mean is not None
    assert model.norm.running_mean.item() == pytest.approx(52 / 6 / 2)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_interleaved_batches_are_normalized_separately_and_only_the_first_is_tracked(
    parts: int,
) -> None:
    model = Norm().train()
    pool = images(0, 10, 50, 3, 90, 44, 7)
    logits = interleaved_logits(model, pool, parts)
    for part in range(parts):
        rows = pool[part::parts].flatten(1).float()
        deviation = (rows - rows.mean()) / (rows.var(correction=0) + 1e-5).sqrt()
        torch.testing.assert_close(logits[part::parts], deviation)
    assert logits.requires_grad
    assert model.norm.running_mean is not None
    assert model.norm.running_mean.item() == pytest.approx(pool[::parts].float().mean().item() / 2)
    assert int(model.norm.num_batches_tracked or 0) == 1
    assert model.norm.track_running_stats


def test_mean_probabilities_normalize_by_the_batch_and_update_nothing() -> None:
    model = Norm().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    mean = mean_probabilities(model, [WEAK, STRONG])
    assert (mean.shape, mean.requires_grad) == ((2, 1), False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.norm.track_running_stats
    table = random_model(1.0)
    rows = table.logits.softmax(1)
    mean = mean_probabilities(table, [images(0, 1), images(2, 3)])
    torch.testing.assert_close(mean, torch.stack([(rows[0] + rows[2]) / 2, (rows[1] + rows[3]) / 2]))


def test_running_statistics_neither_matter_to_the_teacher_of_mean_teacher_nor_change() -> None:
    split, settings = tiny_split(), tiny_settings()
    differences = []
    for shift in (0.0, 100.0):
        state = tiny_state(split, settings, "mean-teacher")
        for module in state.ema.modules():
            if isinstance(module, nn.BatchNorm2d):
                assert module.running_mean is not None
                module.running_mean += shift
        before = {name: value.clone() for name, value in state.ema.state_dict().items()}
        batch, _ = make_batch(split, state.objective.method, VIEWS, settings, 0, CPU)
        losses = state.objective(batch, Context(1, 2, state.ema, torch.Generator()))
        differences.append(losses.parts["difference"].item())
        assert all(torch.equal(value, before[name]) for name, value in state.ema.state_dict().items())
        assert not state.ema.training
    assert differences[0] == differences[1] > 0


def test_a_perturbation_is_in_units_of_the_normalized_image() -> None:
    model = Classifier(nn.Flatten(), torch.tensor([0.5]), torch.tensor([0.25]))
    view = images(100, 200)
    perturbation = torch.tensor([3.0, -2.0]).view(-1, 1, 1, 1)
    moved = perturbed_logits(model, view, perturbation) - model(view).logits
    assert moved.flatten().tolist() == pytest.approx([3.0, -2.0], rel=1e-5)


# --- passes of one method ----------------------------------------------------------------------------------------


class Centered(nn.Module):
    """Subtracts the mean of the batch, as BatchNorm does: outputs depend on the images passed together."""

    def __init__(self, model: Lookup) -> None:
        super().__init__()
        self.model, self.norm = model, nn.BatchNorm1d(CLASSES, affine=False).double()

    def forward(self, images: Tensor) -> Output:
        logits = self.norm(self.model(images).logits)
        return Output(logits, logits)


def test_labeled_logits_are_random_points_between_the_two_passes() -> None:
    model = Centered(random_model(1.0))
    total = losses_of(prepared("adamatch", unlabeled_weight=0.0), model).total.item()
    assert int(model.norm.num_batches_tracked or 0) == 1  # the pass of the labeled images alone does not count
    rows = model.model.logits
    with torch.no_grad():
        alone = nn.functional.batch_norm(rows[:8], None, None, training=True)
        together = nn.functional.batch_norm(rows[:20], None, None, training=True)[:8]
        point = torch.rand(8, CLASSES, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        logits = (together + (alone - together) * point).tolist()
    expected = sum(naive.cross_entropy(row, label) for row, label in zip(logits, LABELS * 2, strict=True)) / LABELED
    assert total == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("width", "expected"), [(3, [0, 1, 2, 3]), (2, [0, 2])])
def test_images_are_rotated_by_all_quarter_turns_that_keep_their_shape(width: int, expected: list[int]) -> None:
    images = torch.arange(2 * 3 * width, dtype=torch.uint8).view(2, 1, 3, width)
    rotated, turns = rotations(images)
    assert turns.tolist() == [turn for turn in expected for _ in range(2)]
    for number, (image, turn) in enumerate(zip(rotated, turns.tolist(), strict=True)):
        assert torch.equal(image, torch.rot90(images[number % 2], turn, (1, 2)))
