"""The lowest versions of the dependencies, with which `make test-lowest` runs, are known."""

import tomllib

from lowest import EXTRAS, ROOT, constraints


def test_every_dependency_has_a_lowest_version() -> None:
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = about["dependencies"] + [one for name in EXTRAS for one in about["optional-dependencies"][name]]
    names = {line.split("==")[0] for line in constraints()}
    assert {requirement.replace(">", "=").split("==")[0].lower() for requirement in wanted} <= names
