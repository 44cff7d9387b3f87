"""The help of a flag that several methods share says what each of them does with it."""

from rankingmatch.cli.flags import method_flags


def help_of(name: str) -> str:
    (flag,) = (flag for flag in method_flags() if flag.name == name)
    assert flag.help is not None
    return flag.help


def test_help_has_the_default_of_every_method() -> None:
    assert "default 1.0, 10.0 for pi-model, 50.0 for mean-teacher" in help_of("unlabeled_weight")
    assert "default 0.95, 0.8 for uda, 0.7 for finessl; in (0, 1]; for pseudo-label, uda" in help_of("threshold")
    assert help_of("epsilon").endswith("[default 6.0; in [0, inf); for vat]")
