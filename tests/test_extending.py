"""What CONTRIBUTING says of adding a method, a dataset or an option: nothing else has to be touched.

Networks, operations and report sections have theirs in tests/networks, tests/augment and tests/report.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tiny import tiny_images
from torch import nn
from torch.nn import functional as F

import rankingmatch as rm
from rankingmatch.cli import main
from rankingmatch.cli.flags import setting_flags
from rankingmatch.core.options import option
from rankingmatch.data import BENCHMARKS, Benchmark, Dataset
from rankingmatch.methods import METHODS, Batch, Context, Losses, Method, MethodInfo
from rankingmatch.runs import config
from rankingmatch.runs.config import Config, repeat_command, resolve
from rankingmatch.training.settings import TrainSettings

QUICK: dict[str, Any] = {"steps": 2, "batch_size": 6, "mu": 1, "threads": 1, "network": "small", "report": False}


@dataclass(eq=False)
class Toy(Method):
    """Cross-entropy with a weight."""

    unlabeled_views: ClassVar[tuple[str, ...]] = ()
    toy_weight: float = option(1.0, "w: weight of the loss.", interval="[0, inf)")

    def forward(self, model: nn.Module, batch: Batch, context: Context) -> Losses:
        loss = self.toy_weight * F.cross_entropy(model(batch.labeled[0]).logits, batch.labels)
        return Losses(loss, {"labeled_ce": loss})


def test_a_method_is_a_class_and_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(METHODS, "toy", MethodInfo(Toy))
    run = rm.train("digits", method="toy", toy_weight=2.0, out=tmp_path / "run", **QUICK)
    assert run.config().hyperparameters == {"toy_weight": 2.0}
    main(["train", "--help"])
    assert "--toy-weight" in capsys.readouterr().out
    main(["methods"])
    assert "toy" in capsys.readouterr().out


def load_toy(data_dir: Path | None, image_size: int | None, progress: Any) -> Dataset:
    train, validation, test = (tiny_images(30, 3, 1, seed=seed) for seed in (1, 2, 3))
    return Dataset(("a", "b", "c"), train, validation, test)


def test_a_dataset_is_an_entry_with_a_loader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    toy = Benchmark("toy", "Toy", "30 patterns", (8, 8, 1), 3, 60, partial(load_toy), {"labels": 6, "flip": False})
    monkeypatch.setitem(BENCHMARKS, "toy", toy)
    result = rm.train("toy", method="supervised", out=tmp_path / "run", **QUICK).result()
    assert result is not None
    assert (result.dataset, result.labels) == ("toy", 6)
    assert result.test_error is not None


@dataclass(frozen=True)
class MoreSettings(TrainSettings):
    """The settings with one more option."""

    patience: int = option(3, "Evaluations without progress, unlike {steps}.", interval="[1, inf)")


def test_an_option_is_one_declaration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(config.SECTIONS, "training", MoreSettings)
    flags = {flag.opts[0]: flag.help or "" for flag in setting_flags()}
    assert flags["--patience"] == "Evaluations without progress, unlike --steps. [default 3; at least 1]"
    with pytest.raises(rm.ConfigError, match=r"patience is 0; it must be in \[1, inf\)"):
        resolve("digits", "supervised", {"patience": 0})
    chosen = resolve("digits", "supervised", {"patience": 5}).config
    assert Config.from_json(chosen.to_json()) == chosen
    assert "--patience 5" in repeat_command(chosen)
    older = chosen.to_json()
    del older["training"]["patience"]
    assert Config.from_json(older).training == resolve("digits", "supervised", {}).config.training
