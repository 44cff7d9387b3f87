"""The public names: what `import rankingmatch as rm` offers, lazily and without leaking anything else."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rankingmatch as rm


def test_importing_the_package_does_not_import_torch() -> None:
    program = "import rankingmatch, sys; dir(rankingmatch); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_public_name_can_be_had() -> None:
    assert dir(rm) == sorted(rm.__all__)
    for name in rm.__all__:
        assert getattr(rm, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rm.nothing  # noqa: B018


@pytest.mark.parametrize("name", ["losses", "augment", "methods", "networks"])
def test_a_public_module_lists_its_names_and_has_them(name: str) -> None:
    module = getattr(rm, name)
    assert module.__all__
    for public in module.__all__:
        assert hasattr(module, public)
        assert public in dir(module)


def test_every_error_is_a_rankingmatch_error() -> None:
    for name in rm.__all__:
        if name.endswith("Error") or name == "Interrupted":
            assert issubclass(getattr(rm, name), rm.RankingMatchError)


def test_train_gives_a_run_that_can_be_used_and_resumed(tmp_path: Path) -> None:
    given: dict[str, Any] = {"labels": 40, "steps": 4, "batch_size": 8, "mu": 1, "threads": 1, "precision": "auto"}
    run = rm.train("digits", method="supervised", out=tmp_path / "run", report=False, **given)
    result = run.result()
    assert result is not None
    assert (result.steps, result.labels, result.method) == (4, 40, "supervised")
    assert run.model_path.exists()
    assert not run.report_path.exists()
    again = rm.train("digits", method="supervised", out=tmp_path / "run", resume=True, report=False, **given)
    assert again.result() == result
    with pytest.raises(rm.ConfigError, match=r"^steps is 5, but the run was started with 4"):
        rm.train("digits", out=tmp_path / "run", resume=True, steps=5)
    with pytest.raises(rm.RunError, match="already holds a run; resume it with resume, or choose another out"):
        rm.train("digits", out=tmp_path / "run", **given)


def test_python_users_never_see_flags() -> None:
    with pytest.raises(rm.ConfigError) as caught:
        rm.train("digits", learning_rate=-1.0)
    assert "--" not in str(caught.value)
    assert caught.value.settings == ("learning_rate",)
    assert caught.value.spelled(lambda name: f"<{name}>").startswith("<learning_rate> is -1.0")
