"""Make the screenshots of the labeling page: `python docs/label_screenshots.py PHOTOS OUT`.

PHOTOS has one folder of photographs per class. They are linked into one folder without classes, and labeled in the real
page by their class; every twelfth label is a mistake.
"""

import sys
import tempfile
from pathlib import Path

from PIL import Image
from selenium.webdriver.common.keys import Keys

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from label_page import LabelPage, ServerProcess

LABELS = 60
PER_CLASS = 40
DESKTOP, PHONE = (1280, 860), (390, 844)


def link_photographs(photographs: Path, folder: Path) -> dict[str, str]:
    """Links to the photographs in one folder, numbered in a mixed order; the result is the class of each."""
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
    page.emulate("Emulation.setDeviceMetricsOverride", **values)
    page.emulate("Emulation.setTouchEmulationEnabled", enabled=is_phone)


def label(page: LabelPage, class_of: dict[str, str], count: int) -> None:
    """Label pictures by keyboard, mostly correctly."""
    keys = {name: key.lower() for name, key, _ in page.classes()}
    for number in range(count):
        name = page.name()
        is_check = page.one("#audit-note").is_displayed()
        right = class_of[name]
        wrong = next(other for other in keys if other != right)
        page.press(keys[wrong if number % 12 == 11 and not is_check else right])
        page.until_after(name)


def save_small(page: LabelPage, path: Path) -> None:
    """Save what the page shows, with 256 colors."""
    page.driver.save_screenshot(str(path))
    with Image.open(path) as shot:
        small = shot.convert("RGB").quantize(256)
    small.save(path, optimize=True)


def take_screenshots(page: LabelPage, address: str, class_of: dict[str, str], out: Path) -> None:
    """Go through the page once."""

    def save(name: str) -> None:
        page.saved()
        page.until(lambda: "shown" not in str(page.one("#message").get_attribute("class")))
        save_small(page, out / f"{name}.png")

    resize(page, DESKTOP)
    page.open(address)
    page.press(",".join(sorted(set(class_of.values()))) + ",")
    loaded = "return [...document.querySelectorAll('#start-pictures img')].every((one) => one.complete)"
    page.until(lambda: page.script(loaded))
    save("label-start")
    page.press(Keys.ENTER)
    page.name()
    label(page, class_of, LABELS)
    page.until(lambda: "has learned from" in page.text("#progress-body"), 300)
    label(page, class_of, 4)
    while not any(hint.text for hint in page.all(".hint")):
        label(page, class_of, 1)
    save("label-page")
    page.emulate("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    save("label-dark")
    page.emulate("Emulation.setEmulatedMedia", features=[])
    resize(page, PHONE)
    save("label-phone")
    resize(page, DESKTOP)
    page.press("g")
    page.until(lambda: page.all(".tile img"), 60)
    mark_wrong_tiles(page, class_of)
    save("label-grid")
    page.press("m")
    page.until(lambda: page.all("#mistakes-frame img"), 60)
    save("label-mistakes")
    page.press("?")
    save("label-keys")


def mark_wrong_tiles(page: LabelPage, class_of: dict[str, str]) -> None:
    """Mark what is not of the class of the grid, as a person would."""
    chosen = page.script("return document.querySelector('#grid-controls select').selectedOptions[0].textContent")
    for tile in page.all(".tile"):
        if class_of[tile.accessible_name.split(":")[0]] != chosen:
            tile.click()


def main(photographs: Path, out: Path) -> None:
    """Make all screenshots."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory) / "photos"
        class_of = link_photographs(photographs, folder)
        server, page = ServerProcess(folder, ()), LabelPage()
        try:
            take_screenshots(page, server.address, class_of, out)
        finally:
            page.driver.quit()
            server.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
