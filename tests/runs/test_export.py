"""An exported file computes what the model computes, says what it is, and is not there if it does not."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from rankingmatch import RankingMatchClassifier
from rankingmatch.cli import main
from rankingmatch.data import benchmark
from rankingmatch.networks import make_classifier
from rankingmatch.runs import export
from rankingmatch.runs.directory import Run
from rankingmatch.runs.model import ModelInfo, save_model

QUICK = ["--steps", "30", "--batch-size", "16", "--mu", "1", "--threads", "1", "--evaluate-every", "10", "--quiet"]
CPU = torch.device("cpu")
Refused = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the digits."""
    path = tmp_path_factory.mktemp("trained") / "run"
    main(["train", "digits", *QUICK, "--out", str(path)])
    return path


@pytest.fixture(scope="module")
def exported(run: Path) -> Path:
    """Its uint8 file, made through the command line."""
    path = run.parent / "model.onnx"
    main(["export", str(run), str(path)])
    return path


def digits() -> np.ndarray:
    """(n, 8, 8, 1) uint8."""
    test = benchmark("digits").load().test
    assert test is not None
    return test.images


def channels_first(images: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def answer(path: Path, images: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"images": images})
    return np.asarray(result)


def test_the_file_equals_pytorch_on_the_digits(run: Path, exported: Path) -> None:
    expected = RankingMatchClassifier.load(run / "model.safetensors").predict_proba(digits())
    found = answer(exported, channels_first(digits()))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert (found.argmax(1) == expected.argmax(1)).all()
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)
    assert len(np.unique(found.argmax(1))) > 3  # a model that says one thing would prove nothing
    for count in (1, 7):
        np.testing.assert_allclose(answer(exported, channels_first(digits()[:count])), found[:count], atol=1e-6)


def test_the_metadata_say_what_a_user_must_know(exported: Path) -> None:
    model = onnx.load(str(exported))
    onnx.checker.check_model(model, full_check=True)
    said = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(said["classes"]) == [str(number) for number in range(10)]
    assert (said["height"], said["width"], said["channels"]) == ("8", "8", "1")
    assert (said["input"], said["layout"], said["output"]) == ("uint8 0…255", "NCHW", "probabilities")
    (images,) = model.graph.input
    assert images.type.tensor_type.elem_type == onnx.TensorProto.UINT8
    assert [d.dim_param or d.dim_value for d in images.type.tensor_type.shape.dim] == ["batch", 1, 8, 8]


def test_floats_in_0_to_1_and_logits_of_the_best_weights(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run.parent / "float.onnx"
    main(["export", str(run), str(path), "--input", "float", "--logits", "--best", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["difference"] <= 1e-4
    assert (report["input"], report["output"], report["images"]) == ("float", "logits", 40)
    model, _ = Run(run).load_model(CPU, best=True)
    images = channels_first(digits()[:50])
    with torch.no_grad():
        expected = model(torch.from_numpy(images)).logits.numpy()
    np.testing.assert_allclose(answer(path, images.astype(np.float32) / 255), expected, atol=1e-4)


def test_colours_and_sides_of_their_own_length_from_a_models_own_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    model = make_classifier("wrn-10-1", 3, torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.3, 0.1]))
    save_model(tmp_path / "own.safetensors", model, ModelInfo("wrn-10-1", ("a", "b", "ç"), 3, 12, 9))
    main(["export", str(tmp_path / "own.safetensors"), str(tmp_path / "own.onnx")])
    out = capsys.readouterr().out
    assert "images (n, 3, 12, 9) uint8 in 0…255 → probabilities (n, 3)" in out
    assert "largest difference between ONNX Runtime and PyTorch over 40 images: " in out
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 12, 9)).astype(np.uint8)
    with torch.no_grad():
        expected = model.eval()(torch.from_numpy(images)).logits.softmax(1).numpy()
    np.testing.assert_allclose(answer(tmp_path / "own.onnx", images), expected, atol=1e-5)


# --- what cannot be exported ---------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["a little", "another prediction", "NaN"])
def test_a_file_that_computes_otherwise_is_not_written(
    wrong: str, run: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    class Session:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.session = onnxruntime_session(str(exported))

        def run(self, names: None, values: dict[str, np.ndarray]) -> list[np.ndarray]:
            (result,) = self.session.run(names, values)
            if wrong == "a little":
                return [result + np.float32(2e-4)]
            return [np.full_like(result, np.nan) if wrong == "NaN" else result[:, ::-1]]

    onnxruntime_session = onnxruntime.InferenceSession
    proto = onnx.load(exported)
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(export, "to_onnx", lambda *_: proto)
    target = tmp_path / "model.onnx"
    target.write_bytes(b"old")
    assert "nothing was written" in refused("export", str(run), str(target))
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("model.onnx", b"old")]


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_without_the_extra_the_line_to_install_it_is_said(
    package: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert f"export needs {package}" in refused("export", str(run), str(tmp_path / "model.onnx"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["RUN", "model.pt"], "model.pt"),
        (["RUN", "nowhere/model.onnx"], "error: nowhere/model.onnx cannot be written"),
        (["no-run", "model.onnx"], "no-run"),
        (["RUN", "model.onnx", "--input", "int"], "uint8"),
        (["FILE", "model.onnx", "--best"], "--best"),
    ],
)
def test_bad_arguments_get_one_line(
    arguments: list[str], named: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"RUN": str(run), "FILE": str(run / "model.safetensors")}
    assert named in refused("export", *(places.get(word, word) for word in arguments))
    assert not list(tmp_path.iterdir())


def test_a_network_that_cannot_be_exported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    model = make_classifier("own_network:linear_network", 3, torch.tensor([0.4]), torch.tensor([0.2]))
    save_model(tmp_path / "own", model, ModelInfo("own_network:linear_network", ("a", "b", "c"), 1, 8, 8))

    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no such operator\nand much more")

    monkeypatch.setattr(torch.onnx, "export", fails)
    err = refused("export", str(tmp_path / "own"), str(tmp_path / "model.onnx"))
    assert "'own_network:linear_network'" in err
    assert "(RuntimeError: no such operator)" in err
    assert not (tmp_path / "model.onnx").exists()
