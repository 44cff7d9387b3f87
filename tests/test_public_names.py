"""The packages for use from Python show their public names and nothing else."""

import importlib
import pkgutil
from types import ModuleType

import pytest

import rankingmatch

PACKAGES = ("losses", "augment", "methods", "networks")
# The methods of the two base classes have the sections; the fields of settings have their help.
EXEMPT = {"Policy", "Method", "NetworkSettings", "ViewSettings"}


@pytest.fixture(params=PACKAGES)
def package(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(f"rankingmatch.{request.param}")


def modules_of(package: ModuleType) -> list[ModuleType]:
    """A package and its modules."""
    names = [found.name for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    return [package, *map(importlib.import_module, names)]


def test_dir_lists_the_public_names(package: ModuleType) -> None:
    assert dir(package) == sorted(package.__all__)
    assert not {"Tensor", "nn", "torch", "dataclass", "np"} & set(dir(package))


def test_every_module_says_what_is_public_and_has_it(package: ModuleType) -> None:
    for module in modules_of(package):
        assert module.__all__, module.__name__
        for name in module.__all__:
            assert hasattr(module, name), f"{module.__name__}.{name}"


def test_every_public_function_and_class_is_documented_with_its_parameters(package: ModuleType) -> None:
    for name in package.__all__:
        value = getattr(package, name)
        if getattr(value, "__module__", "").startswith(rankingmatch.__name__) and callable(value):
            text = value.__doc__ or ""
            assert "Parameters\n" in text or "Attributes\n" in text or name in EXEMPT, name
