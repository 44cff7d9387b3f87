"""Make the screenshots of the report, on a desktop, in the dark and on a phone.

python docs/report_screenshots.py OUT RUN [RUN…]
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from label_screenshots import DESKTOP, PHONE, resize, save_small

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from label_page import LabelPage


def take_screenshots(page: LabelPage, report: Path, out: Path) -> None:
    """Open the report once in each form."""
    drawn = "return document.querySelectorAll('.main-svg').length > 0"
    for name, size, scheme in (
        ("report", DESKTOP, "light"),
        ("report-dark", DESKTOP, "dark"),
        ("report-phone", PHONE, "light"),
    ):
        resize(page, size)
        page.emulate("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        page.driver.get(report.as_uri())
        page.until(lambda: page.script(drawn))
        save_small(page, out / f"{name}.png")


def main(out: Path, runs: list[str]) -> None:
    """Make the report of some runs, and its screenshots."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.html"
        subprocess.run([sys.executable, "-m", "rankingmatch", "report", *runs, "--out", str(report)], check=True)
        page = LabelPage()
        try:
            take_screenshots(page, report, out)
        finally:
            page.driver.quit()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
