"""Prints constraints for pip: the lowest version that pyproject.toml allows of what users install.

The tools that run the tests are those of constraints.txt; what either needs in turn is left to pip.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXTRAS = ("figures", "label", "shards", "tensorboard")  # timm and ray are not installed with these tests


def floors(requirements: list[str]) -> dict[str, str]:
    """Name and lowest version of each requirement `name>=version`, or the only one of `name==version`."""
    found = {}
    for requirement in requirements:
        match = re.fullmatch(r"([\w-]+)[>=]=([\d.]+)", requirement)
        if match is None:
            raise SystemExit(f"pyproject.toml: {requirement!r} has no lowest version; write name>=version")
        found[match[1].lower()] = match[2]
    return found


def constraints() -> list[str]:
    """The lines of a constraints file."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = about["optional-dependencies"]
    lowest = floors(about["dependencies"] + [requirement for name in EXTRAS for requirement in extras[name]])
    exact = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    tools = [line for line in exact if line.split("==")[0].lower() in floors(extras["test"])]
    return [f"{name}=={version}" for name, version in lowest.items()] + tools


if __name__ == "__main__":
    print(*constraints(), sep="\n")
