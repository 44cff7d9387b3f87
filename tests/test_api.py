"""The public names: what `import rankingmatch as rm` offers, lazily and without leaking anything else."""

import csv
import importlib
import inspect
import shutil
import subprocess
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
from image_folders import class_folders

import rankingmatch as rm

# The methods of the two base classes have the sections; the fields of settings have their help.
EXEMPT = {"Policy", "Method", "NetworkSettings", "ViewSettings"}


def test_importing_the_package_does_not_import_torch() -> None:
    program = "import rankingmatch, sys; dir(rankingmatch); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


PACKAGES = [importlib.import_module(f"rankingmatch.{name}") for name in ("losses", "augment", "methods", "networks")]


@pytest.mark.parametrize("package", [rm, *PACKAGES])
def test_dir_lists_the_public_names(package: ModuleType) -> None:
    assert dir(package) == sorted(package.__all__)
    assert all(getattr(package, name) is not None for name in package.__all__)
    assert not {"Tensor", "nn", "torch", "dataclass", "np"} & set(dir(package))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        package.nothing  # noqa: B018


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_function_and_class_is_documented_with_its_parameters(package: ModuleType) -> None:
    for name in package.__all__:
        value = getattr(package, name)
        if getattr(value, "__module__", "").startswith(rm.__name__) and callable(value):
            text = value.__doc__ or ""
            sections = "Parameters\n" in text or "Attributes\n" in text or name in EXEMPT
            # Functions of one package may share their parameters: then the package says what they are.
            shared = isinstance(value, FunctionType) and "share these parameters" in (package.__doc__ or "")
            assert sections or shared, name
            for parameter in inspect.signature(value).parameters if shared else ():
                assert f"`{parameter}`" in f"{package.__doc__}{text}" or f"{parameter} :" in text, (
                    f"{name}: {parameter}"
                )


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
    with pytest.raises(rm.ConfigError, match=r"^steps is 5") as caught:
        rm.train("digits", out=tmp_path / "run", resume=True, steps=5)
    assert "--" not in str(caught.value)
    with pytest.raises(rm.RunError, match=r"resume .* out"):
        rm.train("digits", out=tmp_path / "run", **given)


def test_a_run_is_evaluated_predicts_and_is_exported(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "photos/train", size=(8, 8)).parent
    class_folders(folder / "test", each=2, size=(8, 8))
    given: dict[str, Any] = {"steps": 4, "batch_size": 4, "mu": 1, "threads": 1, "pretrained": False}
    given["network"] = "small"
    run = rm.train(folder, method="supervised", out=tmp_path / "run", report=False, **given)
    (tmp_path / "new").mkdir()
    files = [shutil.copy(path, tmp_path / "new") for path in sorted((folder / "test").rglob("*.png"))[:2]]
    (tmp_path / "new/z.png").write_bytes(b"not an image")
    found = rm.predict(str(run.path), tmp_path / "new", out=tmp_path / "t.csv", sort_into=tmp_path / "sorted")
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
    assert list(found.files) == sorted(files) == [row["file"] for row in rows]
    assert found.labels == [row["label"] for row in rows]
    assert found.probabilities.max(1) == pytest.approx([float(row["confidence"]) for row in rows], abs=1e-6)
    assert [file for file, _ in found.skipped] == [str(tmp_path / "new/z.png")]
    assert len(list((tmp_path / "sorted").rglob("*.png"))) == 2
    assert rm.predict(run, files).files == found.files
    assert rm.evaluate(run)["images"] == 6
    assert rm.export(run, tmp_path / "model.onnx").classes == found.classes
    with pytest.raises(rm.ConfigError, match=r"^out "):
        rm.predict(run, files, out=files[0])
    with pytest.raises(rm.ConfigError, match=r"^link .* sort_into"):
        rm.predict(run, files, link=True)
