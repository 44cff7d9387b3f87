"""Take the screenshots of the docs in a real browser: `python tools/screenshots.py PHOTOS RUN [RUN…]`.

PHOTOS has one folder of photographs per class. They are linked into one folder without classes and labeled in the real
page by their class; every twelfth label is a mistake. The runs are shown in one report.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from selenium.webdriver.common.keys import Keys

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))

from label_page import LabelPage
from labeling_server import ServerProcess

IMAGES = Path(__file__).parents[1] / "docs/images"
LABELS = 60
PER_CLASS = 40
DESKTOP, PHONE = (1280, 860), (390, 844)


def link_photographs(photographs: Path, folder: Path) -> dict[str, str]:
    """Link the photographs into one folder, numbered in a mixed order; return the class of each name."""
    folder.mkdir()
    classes = sorted(path for path in photographs.iterdir() if path.is_dir())
    found = [(rank, path) for one in classes for rank, path in enumerate(sorted(one.iterdir())[:PER_CLASS])]
    class_of = {}
    for number, (_, path) in enumerate(sorted(found)):
        name = f"IMG_{number:04}{path.suffix.lower()}"
        (folder / name).symlink_to(path.resolve())
        class_of[name] = path.parent.name
    return class_of


def resize(page: LabelPage, size: tuple[int, int]) -> None:
    """Give the page the size of a desktop window or of a phone."""
    is_phone = size == PHONE
    values = {"width": size[0], "height": size[1], "deviceScaleFactor": 2 if is_phone else 1, "mobile": is_phone}
    page.emulate("setDeviceMetricsOverride", **values)
    page.emulate("setTouchEmulationEnabled", enabled=is_phone)


def set_scheme(page: LabelPage, scheme: str) -> None:
    """Light or dark."""
    page.emulate("setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


def save(page: LabelPage, name: str) -> None:
    """Save what the page shows, with 256 colors."""
    path = IMAGES / f"{name}.png"
    page.driver.save_screenshot(str(path))
    with Image.open(path) as shot:
        small = shot.convert("RGB").quantize(256)
    small.save(path, optimize=True)


def label(page: LabelPage, class_of: dict[str, str], count: int) -> None:
    """Label images by keyboard, mostly correctly."""
    keys = {name: key.lower() for name, key, _ in page.classes()}
    for number in range(count):
        name = page.name()
        is_check = page.one("#check-note").is_displayed()
        right = class_of[name]
        wrong = next(other for other in keys if other != right)
        page.press(keys[wrong if number % 12 == 11 and not is_check else right])
        page.until_after(name)


def show_labeling(page: LabelPage, address: str, class_of: dict[str, str]) -> None:
    """Go through the labeling page once."""

    def shot(name: str) -> None:
        page.saved()
        page.until(lambda: "shown" not in str(page.one("#message").get_attribute("class")))
        save(page, name)

    resize(page, DESKTOP)
    page.open(address)
    page.press(",".join(sorted(set(class_of.values()))) + ",")
    loaded = "return [...document.querySelectorAll('#start-images img')].every((one) => one.complete)"
    page.until(lambda: page.script(loaded))
    shot("label-start")
    page.press(Keys.ENTER)
    page.name()
    label(page, class_of, LABELS)
    page.until(lambda: "has learned from" in page.text("#progress-body"), 300)
    label(page, class_of, 4)
    while not any(hint.text for hint in page.all(".hint")):
        label(page, class_of, 1)
    shot("label-page")
    set_scheme(page, "dark")
    shot("label-dark")
    set_scheme(page, "light")
    resize(page, PHONE)
    shot("label-phone")
    resize(page, DESKTOP)
    page.press("g")
    page.until(lambda: page.all(".tile img"), 60)
    chosen = page.script("return document.querySelector('#grid-controls select').selectedOptions[0].textContent")
    for tile in page.all(".tile"):  # mark what is not of the class of the grid, as a person would
        if class_of[tile.accessible_name.split(":")[0]] != chosen:
            tile.click()
    shot("label-grid")
    page.press("m")
    page.until(lambda: page.all("#mistakes-frame img"), 60)
    shot("label-mistakes")
    page.press("?")
    shot("label-keys")


def show_report(page: LabelPage, report: Path) -> None:
    """Open the report on a desktop, in the dark and on a phone."""
    drawn = "return document.querySelectorAll('.main-svg').length > 0"
    for name, size, scheme in (
        ("report", DESKTOP, "light"),
        ("report-dark", DESKTOP, "dark"),
        ("report-phone", PHONE, "light"),
    ):
        resize(page, size)
        set_scheme(page, scheme)
        page.driver.get(report.as_uri())
        page.until(lambda: page.script(drawn))
        save(page, name)


def main(photographs: Path, runs: list[str]) -> None:
    """Take all screenshots."""
    with tempfile.TemporaryDirectory() as directory:
        folder, report = Path(directory) / "photos", Path(directory) / "report.html"
        subprocess.run([sys.executable, "-m", "rankingmatch", "report", *runs, "--out", str(report)], check=True)
        class_of = link_photographs(photographs, folder)
        server, page = ServerProcess(folder, ()), LabelPage()
        try:
            show_report(page, report)
            show_labeling(page, server.address, class_of)
        finally:
            page.driver.quit()
            server.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
