"""The notebooks run, and have the outputs that people see before they run them."""

import re
from pathlib import Path

import pytest

notebooks = pytest.importorskip("notebooks", reason="notebooks need pip install nbclient ipykernel")
nbformat = pytest.importorskip("nbformat")


@pytest.mark.slow
@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    notebook = notebooks.executed(path, tmp_path)
    texts = [output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any(re.search(r"test error|% test error", text) for text in texts)


@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_outputs_pictures_and_links_that_exist(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any("image/png" in output.get("data", {}) for cell in code for output in cell.outputs)
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    for cell in notebook.cells:
        for link in re.findall(r"\]\((\.\.[^)#]+)", cell.source):
            assert (path.parent / link).exists(), link
    assert "/tmp/" not in path.read_text()
