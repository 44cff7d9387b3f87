"""The page in a real browser: Debian's chromium, from a file, with no network."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chromium import MARKS, Browser
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select
from synthetic_runs import HTML_NAME, make_history, make_predictions, make_run, without_truth
from toy_section import page_with_toy_section

from rankingmatch.report import Status, page_content, render_page
from rankingmatch.report.sections import load_sections

pytestmark = MARKS
SECTIONS = [section.key for section in load_sections()]


class ReportPage(Browser):
    def open(self, page: Path, section: str = "overview") -> None:
        self.driver.get("about:blank")
        self.errors()
        self.driver.get(f"{page.as_uri()}#{section}")

    def show(self, section: str) -> None:
        self.one(f'nav [aria-controls="{section}"]').click()

    def text(self, selector: str) -> str:
        return self.one(selector).text

    def requests(self) -> list[str]:
        """What the page requested. Its security policy forbids the network; a violation is also among the errors."""
        return list(self.script('return performance.getEntriesByType("resource").map((one) => one.name)'))

    def show_everything(self) -> None:
        """Show every section, without an error."""
        for section in SECTIONS:
            self.show(section)
            assert self.all(f"#{section} .plot svg, #{section} .note, #{section} .card")
        assert self.errors() == []

    def downloaded(self) -> list[str]:
        """The lines of the table of pseudo-labels, which it downloads."""
        file = self.downloads / "pseudo-labels.csv"
        file.unlink(missing_ok=True)
        Select(self.all("#filters select")[1]).select_by_visible_text("all")
        self.one("#csv").click()
        self.until(file.exists)
        return file.read_text().splitlines()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReportPage]:
    browser = ReportPage(tmp_path_factory.mktemp("downloads"))
    yield browser
    browser.driver.quit()


def write_page(directory: Path, *runs: Any) -> Path:
    page = directory / "report.html"
    page.write_text(render_page(page_content(list(runs))))
    return page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(tmp_path_factory.mktemp("page"), make_run())


def test_every_section_opens_without_network_and_without_errors(browser: ReportPage, page: Path) -> None:
    browser.open(page)
    for words in ("Test error", "95% CI", "rankingmatch train made --labels 12"):
        assert words in browser.text("#overview")
    for section in SECTIONS:
        browser.show(section)
        assert [one.get_attribute("id") for one in browser.all("main > section") if one.is_displayed()] == [section]
        selected = browser.all('nav [aria-selected="true"]')
        assert [one.get_attribute("aria-controls") for one in selected] == [section]
        assert browser.all(f"#{section} .plot svg")
    assert browser.errors() == []
    assert all(address.startswith(("data:", "blob:")) for address in browser.requests())
    assert "default-src 'none'" in page.read_text()
    assert not any("server" in str(one.get_attribute("data-title")).lower() for one in browser.all(".modebar-btn"))


def test_a_class_name_that_is_html_stays_text_and_a_click_on_a_column_heading_sorts(
    browser: ReportPage, page: Path
) -> None:
    browser.open(page)
    browser.show_everything()
    assert browser.all("img[src='x']") == []
    browser.show("classes")
    assert HTML_NAME in browser.text("#classes tbody")
    script = "return [...document.querySelectorAll('#classes svg text')].map((one) => one.textContent)"
    assert HTML_NAME in browser.script(script)
    for descending in (False, True):
        browser.all("#classes thead th button")[2].click()
        errors = [float(cell.text) for cell in browser.all("#classes tbody td:nth-child(3)")]
        assert errors == sorted(errors, reverse=descending)


def test_pointing_at_a_dot_shows_its_image(browser: ReportPage, page: Path) -> None:
    browser.open(page, "embedding")
    assert "Logits: error " in browser.text("#embedding")
    card = browser.one("#hover")
    assert not card.is_displayed()
    (dot, *_) = browser.all("#embedding .scatterlayer .point")
    ActionChains(browser.driver).move_to_element(dot).pause(0.4).perform()
    assert card.is_displayed()
    assert all(word in card.text for word in ("label:", "prediction:", "confidence:", "test image"))
    image = card.find_element(By.CSS_SELECTOR, ".thumbnail")
    assert image.value_of_css_property("background-image").startswith('url("data:image/')


def test_filters_filter(browser: ReportPage, page: Path) -> None:
    run = make_run()
    assert run.unlabeled is not None
    predicted, confidence = run.unlabeled.predicted, run.unlabeled.confidence.round(4)
    wrong = predicted != run.unlabeled.truth
    browser.open(page, "pseudo_labels")
    show, label = (Select(browser.all("#filters select")[index]) for index in (1, 0))
    tiles = "#pseudo_labels .gallery .tile"
    assert len(browser.all(tiles)) == wrong.sum()  # mistakes are shown first
    more = browser.one("#pseudo_labels .more-button")
    assert not more.is_displayed()  # all of them are shown
    show.select_by_visible_text("confident and wrong")
    assert len(browser.all(tiles)) == (wrong & (confidence >= 0.95)).sum()
    show.select_by_visible_text("all")
    assert browser.text("#matches").startswith("150 images match")
    assert len(browser.all(tiles)) == 96
    assert more.is_displayed()
    more.click()
    assert len(browser.all(tiles)) == 150
    assert not more.is_displayed()
    label.select_by_visible_text("class 2")
    assert len(browser.all(tiles)) == (predicted == 2).sum()
    label.select_by_visible_text("any")
    search = browser.one("#filters input[type=search]")
    search.send_keys("class 1")
    truth = run.unlabeled.truth
    assert browser.text("#matches").startswith(f"{((predicted == 1) | (truth == 1)).sum()} images match")


def test_the_filtered_rows_can_be_downloaded_and_names_like_formulas_are_texts(
    browser: ReportPage, page: Path, tmp_path: Path
) -> None:
    browser.open(page, "pseudo_labels")
    lines = browser.downloaded()
    assert (lines[0], len(lines)) == ("row,pseudo_label,confidence,truth", 151)
    browser.open(write_page(tmp_path, replace(make_run(), classes=("=1+1", "-1", "@x"))), "pseudo_labels")
    assert {line.split(",")[1] for line in browser.downloaded()[1:]} == {"'=1+1", "-1", "'@x"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_follow_the_system_and_the_button(browser: ReportPage, page: Path, scheme: str) -> None:
    browser.emulate("setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.open(page, "training")
    ground = "return getComputedStyle(document.body).backgroundColor"
    before = browser.script(ground)
    assert (sum(map(int, before[4:-1].split(","))) > 380) == (scheme == "light")
    browser.one("#theme").click()
    assert browser.script(ground) != before
    browser.emulate("setEmulatedMedia", features=[])


def test_nothing_is_wider_than_a_phone(browser: ReportPage, page: Path) -> None:
    browser.emulate("setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    browser.open(page)
    for section in SECTIONS:
        browser.show(section)
        assert browser.script("return document.documentElement.scrollWidth") <= 390, section
    browser.emulate("clearDeviceMetricsOverride")


def test_several_runs_are_compared(browser: ReportPage, tmp_path: Path) -> None:
    runs = [
        make_run(name=f"{method}, seed {seed}", method=method, seed=seed, test_error=error + seed)
        for method, error in (("supervised", 30.0), ("rankingmatch-bm", 20.0))
        for seed in (0, 1)
    ]
    browser.open(write_page(tmp_path, *runs))
    assert len(browser.all("#overview .scroll tbody tr")) == 4
    assert "20.00" in browser.text("#overview td.best")
    assert "Differences over folds" in browser.text("#overview")
    browser.show("embedding")
    assert len(browser.all("#embedding .plot")) == 2  # the first fold of each method
    browser.show_everything()
    browser.show("classes")
    Select(browser.all("#classes select")[0]).select_by_visible_text("rankingmatch-bm, seed 0")
    assert browser.errors() == []


def test_runs_without_test_images_are_compared_by_validation_errors(browser: ReportPage, tmp_path: Path) -> None:
    without: dict[str, Any] = {"test_error": None, "history": make_history(test_error=None)}
    without["evaluated"] = make_predictions("validation")
    runs = [make_run(name=name, method=name, val_error=error, **without) for name, error in (("a", 30.0), ("b", 20.0))]
    browser.open(write_page(tmp_path, *runs))
    head = [cell.text for cell in browser.all("#overview .scroll thead th")]
    assert "validation error %" in head
    assert not any("test" in title or "val." in title for title in head)
    assert "20.00" in browser.text("#overview td.best")
    assert "Validation error with its 95% confidence interval over the validation images" in browser.text("#overview")
    assert "–" in browser.all("#overview .scroll tbody tr")[0].text  # the interval
    assert browser.errors() == []


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ({"classes": 2}, ""),
        ({"classes": 200}, ""),
        (
            {"status": Status.DIVERGED, "diverged_at": 7, "diverged_part": "total", "evaluated": None},
            "stopped at step 7",
        ),
        ({"status": Status.UNDER_WAY, "history": [], "evaluated": None, "unlabeled": None}, "not finished"),
        ({"evaluated": without_truth(make_predictions())}, ""),
    ],
    ids=["2 classes", "200 classes", "NaN", "under way", "no labels"],
)
def test_every_kind_of_run_has_a_page(browser: ReportPage, tmp_path: Path, case: dict[str, Any], words: str) -> None:
    browser.open(write_page(tmp_path, make_run(**case)))
    assert words in browser.text("#overview")
    browser.show_everything()


def test_a_new_section_is_drawn(browser: ReportPage, tmp_path: Path) -> None:
    browser.open(page_with_toy_section(tmp_path), "toy")
    assert [tab.text for tab in browser.all("nav button")][1:4] == ["Training", "Toy section", "Classes"]
    assert browser.text("#toy") == "Runs: first run"
    browser.show_everything()
