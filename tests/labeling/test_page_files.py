"""The files of the labeling page, without a browser."""

import re
from pathlib import Path

import rankingmatch
from rankingmatch.labeling.session import KEYS

PACKAGE = Path(rankingmatch.__file__).parent
PAGE = PACKAGE / "labeling" / "page"


def test_the_colors_are_those_of_the_report() -> None:
    files = PAGE / "label.css", PACKAGE / "report/page/page.css"
    own, report = (re.findall(r"(--[a-z-]+): (#\w+);", path.read_text()) for path in files)
    assert own == report
    assert len(own) == 22  # 11, also for dark mode


def test_the_page_has_no_inline_code_loads_nothing_from_elsewhere_and_sets_names_as_text_only() -> None:
    html = (PAGE / "label.html").read_text()
    assert not re.search(r"\son\w+=|style=|<style|<script(?![^>]*src=)", html)
    addresses = re.findall(r'(?:src|href)="([^"#][^"]*)"', html)
    assert addresses
    assert all((PAGE / address.removeprefix("/page/")).is_file() for address in addresses)
    parsed_as_html = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(")
    for script in PAGE.glob("*.js"):
        source = script.read_text()
        assert not parsed_as_html.search(source), script
        assert all((PAGE / module).is_file() for module in re.findall(r'from "\./([^"]+)"', source)), script


def test_no_key_of_a_class_is_a_command() -> None:
    source = "".join((PAGE / name).read_text() for name in ("label.js", "labeling.js", "grid.js", "mistakes.js"))
    commands = set(re.findall(r"[{,]\s*([a-z]): [(a-zA-Z]", source))
    assert set("agmnstxz") <= commands
    assert not commands & set(KEYS)
