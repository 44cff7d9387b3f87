"""The packages for use from Python show their public names and nothing else."""

import importlib
import inspect
from types import FunctionType, ModuleType

import pytest

import rankingmatch

PACKAGES = ("losses", "augment", "methods", "networks")
# The methods of the two base classes have the sections; the fields of settings have their help.
EXEMPT = {"Policy", "Method", "NetworkSettings", "ViewSettings"}


@pytest.fixture(params=PACKAGES)
def package(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(f"rankingmatch.{request.param}")


def test_dir_lists_the_public_names(package: ModuleType) -> None:
    assert dir(package) == sorted(package.__all__)
    assert not {"Tensor", "nn", "torch", "dataclass", "np"} & set(dir(package))


def test_every_public_function_and_class_is_documented_with_its_parameters(package: ModuleType) -> None:
    for name in package.__all__:
        value = getattr(package, name)
        if getattr(value, "__module__", "").startswith(rankingmatch.__name__) and callable(value):
            text = value.__doc__ or ""
            sections = "Parameters\n" in text or "Attributes\n" in text or name in EXEMPT
            # Functions of one package may share their parameters: then the package says what they are.
            shared = isinstance(value, FunctionType) and "share these parameters" in (package.__doc__ or "")
            assert sections or shared, name
            for parameter in inspect.signature(value).parameters if shared else ():
                assert f"`{parameter}`" in f"{package.__doc__}{text}" or f"{parameter} :" in text, (
                    f"{name}: {parameter}"
                )
