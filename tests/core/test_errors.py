"""Errors carry the names of options; whoever shows them spells the names."""

import pickle
from pathlib import Path

import pytest

from rankingmatch.core.errors import (
    ConfigError,
    DivergedError,
    Interrupted,
    RankingMatchError,
    RunError,
    is_out_of_memory,
    setting,
    unknown_name,
)
from rankingmatch.core.options import flag


def test_a_name_is_spelled_by_whoever_shows_the_message() -> None:
    error = ConfigError(f"{setting('learning_rate')} is {{mu}}; lower {setting('mu')}")
    assert str(error) == "learning_rate is {mu}; lower mu"
    assert error.spelled(flag) == "--learning-rate is {mu}; lower --mu"
    assert error.settings == ("learning_rate", "mu")
    assert DivergedError(7, "labeled_ce").spelled(flag).endswith("at step 7; try a lower --learning-rate")


@pytest.mark.parametrize(
    "error",
    [
        ConfigError(f"{setting('mu')} is 0"),
        DivergedError(7, "labeled_ce"),
        RunError("not finished", resumable=Path("runs/a")),
        Interrupted("stopped", resumable=Path("runs/b")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_the_way_from_another_process(error: RankingMatchError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert copy.spelled(flag) == error.spelled(flag)
    assert getattr(copy, "resumable", None) == getattr(error, "resumable", None)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("could not create a primitive"), True),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), True),
        (RuntimeError("could not create a primitive descriptor for a convolution"), False),
        (ImportError("No module named 'ray'"), False),
        (RuntimeError("shapes differ"), False),
        (RunError("DefaultCPUAllocator"), False),
    ],
)
def test_what_means_that_memory_is_exhausted(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) == expected


@pytest.mark.parametrize(
    ("name", "known", "words"),
    [
        ("fixmach", ["mixmatch", "fixmatch-ra", "fixmatch-cta"], "did you mean 'fixmatch-ra' or 'fixmatch-cta'?"),
        ("digit", ["digits", "svhn"], "did you mean 'digits'?"),
        ("trian", ["train", "evaluate"], "did you mean 'train'?"),
        ("xyz", ["train", "evaluate"], "choose from: evaluate, train"),
        ("", ["train"], "choose from: train"),
    ],
)
def test_the_nearest_names_are_suggested(name: str, known: list[str], words: str) -> None:
    assert str(unknown_name("thing", name, known)) == f"unknown thing '{name}'; {words}"
