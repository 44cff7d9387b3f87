"""A method added from outside: one class and one line in the table, or an import path."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tiny import tiny_settings, tiny_split, tiny_state
from torch import nn
from torch.nn import functional as F

from rankingmatch.core.errors import ConfigError
from rankingmatch.core.options import option
from rankingmatch.methods import METHODS, Batch, Context, Losses, Method, MethodInfo, hyperparameters_of, make_method
from rankingmatch.training.loop import train


@dataclass(eq=False)
class Toy(Method):
    """Cross-entropy with smoothed labels."""

    smoothing: float = option(0.1, "Label smoothing.", interval="[0, 1)")

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        loss = F.cross_entropy(model(batch.labeled[0]).logits, batch.labels, label_smoothing=self.smoothing)
        return Losses(loss, {"labeled_ce": loss})


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "toy", MethodInfo(Toy))


def test_one_line_in_the_table_makes_a_method_available_by_name() -> None:
    method = make_method("toy", {"smoothing": 0.3})
    assert isinstance(method, Toy)
    assert method.smoothing == 0.3
    assert [option.name for option in hyperparameters_of("toy")] == ["smoothing"]
    assert make_method("toy").unlabeled_views == ("weak", "strong")


def test_it_is_trained_like_the_others() -> None:
    split, settings = tiny_split(), tiny_settings(steps=3)
    state = tiny_state(split, settings, "toy")
    before = state.model.backbone.head.weight.clone()  # type: ignore[union-attr, operator]
    records = list(train(state, split, settings))
    assert records[-1].evaluation is not None
    assert not torch.equal(state.model.backbone.head.weight, before)  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"smoothing": 1.5}, r"^smoothing is 1.5; it must be in \[0, 1\)"),
        ({"margin": 0.5}, "^margin is not used by the method 'toy'; its hyperparameters: smoothing$"),
    ],
)
def test_its_hyperparameters_are_checked(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_method("toy", given)
