"""The labeling page in chromium."""

from chromium import Browser
from selenium.webdriver.common.action_chains import ActionChains


class LabelPage(Browser):
    def open(self, address: str) -> None:
        """Open the address in this tab, and forget earlier errors."""
        self.driver.get(address)
        self.until(lambda: self.script("return document.querySelector('main > section:not([hidden])') !== null"))
        self.errors()

    def text(self, selector: str) -> str:
        """The text of an element, as it is in the page."""
        return str(self.script("return document.querySelector(arguments[0]).textContent", selector))

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

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
        self.until(lambda: self.text("#image-name") != name)

    def saved(self) -> None:
        self.until(lambda: not self.one("#unsaved").is_displayed())
