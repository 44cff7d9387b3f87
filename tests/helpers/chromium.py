"""Pages in chromium."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
NO_BROWSER = "no chromium and chromedriver: apt-get install chromium chromium-driver"
Result = TypeVar("Result")

MARKS = [pytest.mark.slow, pytest.mark.skipif(not (CHROMIUM and DRIVER), reason=NO_BROWSER)]


class Browser:
    """Chromium with one tab, and the errors of its pages."""

    def __init__(self, downloads: Path = Path()) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1280,900"):
            options.add_argument(f"--{argument}")
        options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options, Service(DRIVER))
        self.downloads = downloads

    def until(self, question: Callable[[], Result], seconds: float = 15) -> Result:
        """Ask until the answer is true."""
        deadline = time.monotonic() + seconds
        while not (answer := question()):
            shown = self.script("return document.body.innerText") if time.monotonic() > deadline else ""
            assert time.monotonic() <= deadline, f"it did not become true; the page shows: {shown}"
            time.sleep(0.02)
        return answer

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def script(self, source: str, *arguments: Any) -> Any:
        return self.driver.execute_script(source, *arguments)

    def errors(self) -> list[str]:
        """Errors and warnings of the page since the last call, including violations of its security policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def emulate(self, command: str, **values: Any) -> None:
        self.driver.execute_cdp_cmd(f"Emulation.{command}", values)
