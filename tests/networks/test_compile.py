"""`--compile`: the same training through torch.compile, and a sentence where that does not work."""

from functools import partialmethod
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from rankingmatch.core.errors import ConfigError
from rankingmatch.runs.config import resolve
from rankingmatch.runs.directory import Run
from rankingmatch.runs.job import start, training_records

QUICK = {"steps": 4, "batch_size": 8, "mu": 2, "threads": 1, "evaluate_every": 4}


def trained(path: Path, *, compiled: bool) -> dict[str, torch.Tensor]:
    list(training_records(start(Run(path), resolve("digits", "rankingmatch-bm", {**QUICK, "compile": compiled}))))
    return load_file(path / "model.safetensors")


def test_a_compiled_network_learns_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The network is captured as graphs, which then run as they are: translating them needs a compiler and minutes.
    captured = []

    def as_it_is(graph: torch.fx.GraphModule, inputs: object) -> object:
        captured.append(graph)
        return graph.forward

    monkeypatch.setattr(nn.Module, "compile", partialmethod(nn.Module.compile, backend=as_it_is))
    monkeypatch.setattr("rankingmatch.runs.job._require_compiler", lambda device: None)
    plain, compiled = trained(tmp_path / "plain", compiled=False), trained(tmp_path / "compiled", compiled=True)
    assert captured
    assert plain.keys() == compiled.keys()
    for name, value in plain.items():
        torch.testing.assert_close(compiled[name], value, msg=name)


def test_without_a_compiler_a_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("No working C++ compiler found\nand much more")

    monkeypatch.setattr(torch, "compile", lambda function: fail)
    with pytest.raises(ConfigError, match=r"compile needs .*No working C\+\+ compiler found\); .* remove the option"):
        trained(tmp_path / "run", compiled=True)
    assert not (tmp_path / "run").exists()
