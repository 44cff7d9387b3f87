"""How long a step takes is remembered, and approximated from that for others, without training anything."""

from pathlib import Path

import pytest
import torch

from rankingmatch.networks import NETWORKS, make_classifier
from rankingmatch.runs import speeds
from rankingmatch.runs.config import Plan, resolve
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import start, training_records
from rankingmatch.runs.speeds import Speed, approximate_speed, remember_speed, remembered_speed, speed_of_run


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "rankingmatch" / "speeds.json"


def plan(method: str = "fixmatch-ra", **given: object) -> Plan:
    return resolve("digits", method, {"labels": 40, "threads": 1, **given})


def test_operations_are_those_of_the_convolutions_and_linear_layers() -> None:
    # wrn-10-1 on 8×8×1: products and sums of each convolution, counted by hooks of its modules.
    model, counted = make_classifier("wrn-10-1", 10, channels=1).eval(), 0.0

    def count(module: torch.nn.Module, inputs: object, output: torch.Tensor) -> None:
        nonlocal counted
        weight = module.weight
        assert isinstance(weight, torch.Tensor)
        counted += 2 * output.numel() * weight[0].numel()

    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d | torch.nn.Linear):
            module.register_forward_hook(count)
    model(torch.zeros(1, 1, 8, 8, dtype=torch.uint8))
    assert speeds._operations("wrn-10-1", "all", 10, (1, 8, 8)) == counted > 0


def test_the_frozen_part_of_a_network_costs_nothing() -> None:
    whole, top, head = (
        speeds._operations("efficientnet-lite0", tune, 10, (3, 64, 64)) for tune in ("all", "top", "head")
    )
    assert whole is not None
    assert top is not None
    assert head == 2 * 1280 * 10
    assert head < top < whole


class Flat(torch.nn.Module):
    """A network that fails on an empty batch, as its size does not tell the width."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(channels * 8 * 8, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.linear(images.reshape(len(images), -1))
        return logits


def test_a_network_that_takes_no_empty_batch_is_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETWORKS, "flat", Flat)
    with pytest.raises(RuntimeError):
        speeds._counted_operations("flat", "all", 10, torch.zeros(0, 3, 8, 8, dtype=torch.uint8))
    assert speeds._operations("flat", "all", 10, (3, 8, 8)) == 2 * 3 * 8 * 8 * 10


def test_what_was_measured_is_remembered() -> None:
    assert remembered_speed(plan()) is None
    remember_speed(plan(), Speed(0.5, 2.0))
    assert remembered_speed(plan()) == Speed(0.5, 2.0)
    assert remembered_speed(plan("supervised")) is None
    assert remembered_speed(plan(batch_size=3)) is None


def test_another_step_takes_as_long_as_its_operations_at_the_speed_of_the_most_similar_one() -> None:
    remember_speed(plan("fixmatch-ra", mu=7), Speed(1.005, 1.0))
    remember_speed(plan("fixmatch-ra", mu=7, network="wrn-28-2"), Speed(100.005, 1.0))
    found = approximate_speed(plan("supervised", mu=7))
    assert found is not None
    assert found.step == pytest.approx(0.005 + 1 / 15)  # 1 view of B images, instead of 1 + 2 · 7
    other = approximate_speed(plan("fixmatch-ra", mu=7, batch_size=32, network="wrn-28-2"))
    assert other is not None
    assert other.step == pytest.approx(0.005 + 100 * 32 / plan().config.training.batch_size)


def test_steps_of_another_precision_threads_or_size_say_nothing() -> None:
    differing: list[dict[str, object]] = [{"precision": "bfloat16"}, {"threads": 2}, {"network": "wrn-28-2"}]
    others = [plan("supervised", batch_size=8, **given) for given in differing]
    before = [approximate_speed(other) for other in others]
    remember_speed(plan("supervised", batch_size=4), Speed(50.005, 50.0))
    similar = approximate_speed(plan("supervised", batch_size=8))
    assert similar is not None
    assert similar.step == pytest.approx(0.005 + 100.0)
    assert [approximate_speed(other) for other in others] == before


def test_the_usual_speed_depends_on_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(precision: str) -> float:
        found = approximate_speed(plan(network="wrn-28-2", precision=precision))
        assert found is not None
        return found.step - speeds.STEP_OVERHEAD

    monkeypatch.setattr(speeds, "computes_bfloat16", lambda device: True)
    assert step("bfloat16") == pytest.approx(step("float32") / 2)
    assert step("float16") == pytest.approx(step("float32") * 4)
    monkeypatch.setattr(speeds, "computes_bfloat16", lambda device: False)
    assert step("bfloat16") == pytest.approx(step("float32") * 4)


def test_a_history_gives_the_median_speed_of_a_run() -> None:
    line = {"step": 10, "seconds": 30.0, "step_seconds": 2.0}  # 20 seconds of steps, 10 of evaluation
    later = {"step": 15, "seconds": 52.0, "step_seconds": 4.0}  # 20 and 2
    last = {"step": 20, "seconds": 68.0, "step_seconds": 3.0}  # 15 and 1
    assert speed_of_run([line, later, last]) == Speed(3.0, 2.0)
    assert speed_of_run([{"step": 10, "seconds": 30.0}, later]) == Speed(4.0, 2.0)  # an older version's
    assert speed_of_run([{"step": 10}, {"step": 12, "seconds": None}, line]) == Speed(2.0, 10.0)  # written by others
    assert speed_of_run([]) is None


@pytest.mark.parametrize(("steps", "known"), [(100, True), (99, False)])
def test_a_finished_run_is_remembered_unless_it_was_short(steps: int, known: bool, tmp_path: Path) -> None:
    tiny = plan(steps=steps, batch_size=2, mu=1)
    for _ in training_records(start(Run(tmp_path / "run"), tiny)):
        pass
    speed = remembered_speed(tiny)
    assert (speed is not None) == known
    assert speed is None or speed == speed_of_run(Run(tmp_path / "run").history())


@pytest.mark.parametrize("content", ["", "{", "[]", '{"x": 3}', '{"x": [1, 2, "y"]}', '{"x": [1, 2, -3]}'])
def test_a_damaged_table_is_an_empty_one(content: str, own_cache: Path) -> None:
    own_cache.parent.mkdir()
    own_cache.write_text(content)
    assert remembered_speed(plan()) is None
    assert approximate_speed(plan()) is not None
    remember_speed(plan(), Speed(0.5, 2.0))
    assert remembered_speed(plan()) == Speed(0.5, 2.0)
