"""The labeling page in chromium."""

import shutil
import time
from collections.abc import Callable
from typing import Any, TypeVar

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
NO_BROWSER = "no chromium and chromedriver: apt-get install chromium chromium-driver"
Result = TypeVar("Result")


class LabelPage:
    """The page in chromium."""

    def __init__(self) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1280,900"):
            options.add_argument(f"--{argument}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options, Service(DRIVER))

    def open(self, address: str) -> None:
        """Open the address in this tab, and forget earlier errors."""
        self.driver.get(address)
        self.until(lambda: self.script("return document.querySelector('main > section:not([hidden])') !== null"))
        self.errors()

    def until(self, question: Callable[[], Result], seconds: float = 15) -> Result:
        """Ask until the answer is true."""
        deadline = time.monotonic() + seconds
        while not (answer := question()):
            shown = self.script("return document.body.innerText") if time.monotonic() > deadline else ""
            assert time.monotonic() <= deadline, f"it did not become true; the page shows: {shown}"
            time.sleep(0.02)
        return answer

    def one(self, selector: str) -> WebElement:
        """The element."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        """All elements."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """The text of an element, as it is in the page."""
        return str(self.script("return document.querySelector(arguments[0]).textContent", selector))

    def script(self, source: str, *arguments: Any) -> Any:
        """Run a script."""
        return self.driver.execute_script(source, *arguments)

    def press(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def errors(self) -> list[str]:
        """Errors and warnings of the page since the last call, including violations of its security policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def emulate(self, command: str, **values: Any) -> None:
        """Let chromium pretend to be another device."""
        self.driver.execute_cdp_cmd(command, values)

    # --- one image at a time ---

    def name(self) -> str:
        """The name of the image, once it is shown."""
        self.until(lambda: self.all("#label-frame img") and self.text("#image-name"))
        return self.text("#image-name")

    def key_of(self, name: str) -> str:
        """The key of the class that the name of an image begins with."""
        kind = name.split("-")[0]
        return next(key.lower() for known, key, _ in self.classes() if known == kind)

    def classes(self) -> list[tuple[str, str, int]]:
        """Name, key and count of each class button."""
        parts = "[...document.querySelectorAll('.class')].map((one) => ['.name', 'kbd', '.count'].map("
        rows = self.script(f"return {parts}(part) => one.querySelector(part).textContent))")
        return [(name, key, int(count.replace(",", ""))) for name, key, count in rows]

    def label(self, count: int = 1) -> list[str]:
        """Label images correctly, by keyboard; the result is their names."""
        return [self.press_on(self.key_of(self.name())) for _ in range(count)]

    def press_on(self, key: str) -> str:
        """Press a key that shows another image; the result is the name of the one before."""
        name = self.name()
        self.press(key)
        self.until_after(name)
        return name

    def until_after(self, name: str) -> None:
        """Wait until another image is shown."""
        self.until(lambda: self.text("#image-name") != name)

    def saved(self) -> None:
        """Wait until everything is saved."""
        self.until(lambda: not self.one("#unsaved").is_displayed())
