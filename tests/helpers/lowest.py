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
    return {name.lower(): version for name, version in (re.split("[>=]=", one) for one in requirements)}


if __name__ == "__main__":
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = about["optional-dependencies"]
    lowest = floors(about["dependencies"] + [requirement for name in EXTRAS for requirement in extras[name]])
    exact = floors([line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line])
    tools = {name: exact[name] for name in floors(extras["test"]) if name in exact}
    print(*(f"{name}=={version}" for name, version in (tools | lowest).items()), sep="\n")
