"""What unlabeled images are trained towards, and what methods remember, at points one can compute by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankingmatch.methods import PseudoLabels, Task
from rankingmatch.methods.freematch import fairness_loss
from rankingmatch.methods.targets import LearnedLabels, decay_at_length, pseudo_label


def test_a_pseudo_label_is_confident_from_the_threshold_on() -> None:
    logits = torch.tensor([[0.5, 0.5], [0.2, 0.8], [0.9, 0.1]]).log()
    pseudo = pseudo_label(logits, 0.8)
    assert pseudo.labels[1:].tolist() == [1, 0]
    assert pseudo_label(logits, 0.5).confident.tolist() == [True, True, True]
    assert pseudo_label(logits, 0.85).confident.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("steps", "given", "decay"),
    [
        (131_072, None, 0.999),
        (2**20, None, 0.999),
        (13_107, None, 1 - 0.001 * 131_072 / 13_107),
        (1000, None, 0.9),
        (1000, 0.999, 0.999),
        (131_072, 0.5, 0.5),
    ],
)
def test_the_decay_follows_the_length_of_the_run_unless_it_is_given(
    steps: int, given: float | None, decay: float
) -> None:
    assert decay_at_length(given, steps) == pytest.approx(decay)


def learned_labels(labels: list[int], classes: int = 3) -> LearnedLabels:
    memory = LearnedLabels(Task(classes, 0, len(labels)))
    memory.load_state_dict({"labels": torch.tensor(labels)})
    return memory


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.booleans()), max_size=30))
def test_what_is_remembered_equals_a_loop_over_the_rows(batch: list[tuple[int, int, bool]]) -> None:
    learned, expected = learned_labels([-1] * 6), [-1] * 6
    for start in range(0, len(batch), 7):
        rows, labels, confident = zip(*batch[start : start + 7], strict=True)
        learned.update(torch.tensor(rows), PseudoLabels(torch.tensor(labels), torch.tensor(confident)))
        for row, label, sure in batch[start : start + 7]:
            expected[row] = label if sure else expected[row]
    assert learned.labels.tolist() == expected
    assert learned.counts.tolist() == [expected.count(label) for label in (-1, 0, 1, 2)]


@pytest.mark.parametrize(("classes", "size"), [(2, 1), (128, 1), (129, 2), (2**15, 2), (2**15 + 1, 4)])
def test_a_learned_label_takes_as_few_bytes_as_possible(classes: int, size: int) -> None:
    learned = learned_labels([classes - 1, -1], classes)
    assert learned.labels.element_size() == size
    assert learned.labels.tolist() == [classes - 1, -1]
    assert learned.counts.sum() == 2
    assert learned.counts[-1] == 1


def test_damaged_learned_labels_are_brought_into_range() -> None:
    assert learned_labels([100, -7, 1]).counts.tolist() == [1, 0, 1, 1]


def test_fairness_costs_nothing_if_no_row_is_confident_and_stays_finite_if_a_class_is_never_predicted() -> None:
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    nobody = fairness_loss(logits, torch.zeros(4, dtype=torch.bool), torch.full((3,), 1 / 3), torch.zeros(3))
    nobody.backward()
    assert nobody.item() == 0.0
    assert logits.grad is not None
    assert logits.grad.abs().sum() == 0
    vanished = fairness_loss(logits, torch.ones(4, dtype=torch.bool), torch.full((3,), 1 / 3), torch.zeros(3))
    vanished.backward()
    assert torch.isfinite(vanished)
    assert torch.isfinite(logits.grad).all()
