"""The labeling page in a real browser, with the real server."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
from chromium import MARKS
from label_page import LabelPage
from labeling_server import LabelServer, ServerProcess, ServerThread
from selenium.webdriver.common.keys import Keys
from tour import make_photographs

pytestmark = MARKS
HOSTILE = "<img src=x onerror=alert(1)>"
Start = Callable[..., Any]


@pytest.fixture(scope="module")
def chromium() -> Iterator[LabelPage]:
    page = LabelPage()
    yield page
    page.driver.quit()


@pytest.fixture
def page(chromium: LabelPage) -> Iterator[LabelPage]:
    """One empty tab."""
    yield chromium
    for handle in chromium.driver.window_handles[1:]:
        chromium.driver.switch_to.window(handle)
        chromium.driver.close()
    chromium.driver.switch_to.window(chromium.driver.window_handles[0])
    chromium.emulate("clearDeviceMetricsOverride")
    chromium.emulate("setEmulatedMedia", features=[])
    chromium.driver.get("about:blank")
    chromium.errors()


@pytest.fixture
def start(tmp_path: Path, page: LabelPage) -> Iterator[Start]:
    """Starts a server without a model, or `rankingmatch label`, and opens its page."""
    servers: list[LabelServer] = []

    def start_one(
        kind: type[LabelServer] = ServerThread, classes: tuple[str, ...] = ("disk", "square"), count: int = 60
    ) -> LabelServer:
        servers.append(kind(make_photographs(tmp_path / "photos", count), classes))
        page.open(servers[-1].address)
        return servers[-1]

    yield start_one
    for server in servers:
        server.stop()


def test_from_the_first_screen_to_a_model_that_suggests_fills_a_grid_and_finds_a_mistake(
    page: LabelPage, start: Start
) -> None:
    server = start(ServerProcess, (), count=120)
    assert "Which classes do your 120 images belong to?" in page.one("#start").text
    page.press("disk,square", Keys.ENTER, Keys.ENTER)
    page.name()
    assert [name for name, _, _ in page.classes()] == ["disk", "square"]
    page.label(12)
    page.until(lambda: "has learned from" in page.text("#progress-body"), 60)
    page.label(3)  # the next two were handed out before the model was ready
    accepted = checked = 0
    while not (accepted and checked):
        name, is_check = page.name(), page.one("#check-note").is_displayed()
        hints = [hint.text for hint in page.all(".class .hint") if hint.text]
        if is_check:
            assert hints == []
            assert "guess" not in page.text("#image-note")
            checked += 1
            page.press(page.key_of(name))
        else:
            assert re.fullmatch(r"\d+% ↵", hints[0])
            accepted += 1
            page.press(Keys.ENTER)
        page.until_after(name)
    page.saved()
    before = server.labels()
    assert before == {name: name.split("-")[0] for name in before}
    assert len(before) == sum(count for _, _, count in page.classes()) == 15 + accepted + checked
    # The grid
    page.press("g")
    page.until(lambda: len(page.all(".tile")) >= 10)
    tiles = len(page.all(".tile"))
    page.press(Keys.ARROW_RIGHT, " ")
    wrong = page.one(".tile.wrong").accessible_name.split(":")[0]
    page.press(Keys.ENTER)
    page.until(lambda: len(server.labels()) == len(before) + tiles - 1)
    assert [row["origin"] for row in server.rows()][-1] == "accepted"
    assert wrong not in server.labels()
    page.press("z")
    page.until(lambda: server.labels() == before)
    page.until(lambda: len(page.all(".tile")) == tiles)
    assert page.one(".tile.wrong").accessible_name.split(":")[0] == wrong
    # A mistake
    page.press(Keys.ESCAPE)
    while page.one("#check-note").is_displayed():
        page.label(1)
    wrong = page.name()
    page.press("2" if wrong.startswith("disk") else "1")
    page.until_after(wrong)
    page.label(8)
    page.saved()

    def is_listed() -> bool:
        page.press(Keys.ESCAPE, "m")
        time.sleep(0.5)
        return page.text("#mistakes-name") == wrong

    page.until(is_listed, 60)
    page.press(Keys.ARROW_RIGHT)
    page.until(lambda: server.labels()[wrong] == wrong.split("-")[0])
    assert page.errors() == []


def test_undo_also_of_an_earlier_session_skip_none_and_looking_back(page: LabelPage, start: Start) -> None:
    server = start()
    names = page.label(4)
    following = page.name()
    for name in reversed(names):
        page.press("z")
        assert page.name() == name
    page.saved()
    assert server.labels() == {}
    assert page.label(4) == names
    assert page.name() == following
    page.saved()
    server.stop()
    page.open(server.start())
    page.name()
    page.press("z")
    page.until(lambda: page.text("#image-name") == names[-1])
    page.press_on("s")
    none = page.press_on("x")
    labeled, following = page.label(1)[0], page.name()
    page.press(Keys.ARROW_LEFT)
    assert page.name() == labeled
    assert "labeled: " + labeled.split("-")[0] in page.text("#image-note")
    page.press(Keys.ARROW_LEFT)
    assert page.text("#image-note") == "labeled: none of the classes"
    page.press(page.key_of(none), Keys.ARROW_RIGHT)  # changes the label, and moves on twice
    assert page.name() == following
    page.saved()
    assert server.labels() == {name: name.split("-")[0] for name in (*names[:3], labeled, none)}


def test_a_new_class_is_added_while_labeling_then_renamed_and_merged(page: LabelPage, start: Start) -> None:
    server = start()
    name = page.name()
    page.press("n")
    page.press("disk", Keys.ENTER)
    page.until(lambda: "already a class" in page.text("dialog .problem"))  # the dialog stays open
    assert len(page.errors()) == 1  # the refusal
    page.one("#new-class").clear()
    page.one("#new-class").send_keys("circle", Keys.ENTER)
    page.until(lambda: ("circle", "3", 1) in page.classes())
    assert page.name() != name
    page.one("#edit-classes").click()
    page.one("#edit-which").send_keys("circle")
    page.one("#edit-name").clear()
    page.one("#edit-name").send_keys("round thing", Keys.ENTER)
    page.until(lambda: ("round thing", "3", 1) in page.classes())
    page.one("#edit-classes").click()
    page.one("#edit-which").send_keys("round thing")
    page.one("#edit-into").send_keys("disk")
    next(button for button in page.all("dialog button") if button.text == "Merge").click()
    page.until(lambda: page.classes() == [("disk", "1", 1), ("square", "2", 0)])
    assert server.rows()[-1]["part"] == "class:round thing"
    assert page.errors() == []


def test_labels_made_while_the_server_is_dead_are_saved_when_it_is_back(page: LabelPage, start: Start) -> None:
    server = start(ServerProcess)
    page.label(3)
    page.saved()
    page.until(lambda: page.script("return performance.getEntriesByType('resource').length") > 20)
    server.kill()
    page.label(2)
    page.until(lambda: "connection to the server is lost" in page.text("#banners"))
    page.until(lambda: page.text("#unsaved") == "2 unsaved")
    address = server.start()
    page.until(lambda: "Open the address that it prints" in page.text("#banners"))
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    page.open(address)
    page.driver.switch_to.window(first)
    page.saved()
    assert len(server.labels()) == 5
    page.until(lambda: page.text("#banners") == "")
    assert page.label(2)


def test_two_tabs_get_different_images_and_the_same_counts_and_a_reloaded_one_its_image(
    page: LabelPage, start: Start
) -> None:
    server = start()
    first, names = page.driver.current_window_handle, page.label(3)
    page.driver.switch_to.new_window("tab")
    page.open(server.address)
    names += page.label(3)
    second = page.driver.current_window_handle
    page.driver.switch_to.window(first)
    names += page.label(3)
    assert len(set(names)) == 9
    for handle in (first, second):
        page.driver.switch_to.window(handle)
        page.until(lambda: sum(count for _, _, count in page.classes()) == 9)
    assert len(server.labels()) == 9
    page.saved()
    name, classes = page.name(), page.classes()
    page.driver.refresh()
    assert (page.name(), page.classes()) == (name, classes)


def test_names_of_files_and_classes_that_are_html_stay_text(page: LabelPage, start: Start, tmp_path: Path) -> None:
    folder = make_photographs(tmp_path / "photos", 12)
    for number, path in enumerate(sorted(folder.iterdir())):
        path.rename(folder / f"{HOSTILE}{number}.jpg")
    start(count=0)
    assert HOSTILE in page.name()
    page.press("n")
    page.press(HOSTILE, Keys.ENTER)
    page.until(lambda: (HOSTILE, "3", 1) in page.classes())
    for key in "gmt":
        page.press(key)
        time.sleep(0.3)
    page.press(Keys.ESCAPE)
    page.one("#edit-classes").click()
    assert page.all("img[src='x']") == []
    assert page.errors() == []


FAKE_ANSWER = """
window.realFetch ??= window.fetch;
const [error, status] = arguments, released = new Promise((resolve) => { window.release = resolve; });
window.fetch = async (path, options) => {
  if (path !== "/label") return window.realFetch(path, options);
  if (status) return new Response(JSON.stringify({error}), {status});
  await released;
  return window.realFetch(path, options);
};
"""


def test_keys_are_answered_while_the_server_is_slow_refuses_or_has_no_space(page: LabelPage, start: Start) -> None:
    server = start()
    name = page.name()
    page.script(FAKE_ANSWER, "That class was removed.", 400)
    page.press("1")
    page.until(lambda: page.text("#message") == "That class was removed.")
    assert page.name() == name
    assert page.text("#image-note") != "labeled: disk"
    assert sum(count for _, _, count in page.classes()) == 0
    page.script(FAKE_ANSWER, "", 0)  # waits
    names = page.label(4)
    page.until(lambda: page.text("#unsaved") == "4 unsaved")
    assert sum(count for _, _, count in page.classes()) == 4
    assert page.script("const leaving = new Event('beforeunload', {cancelable: true}); return !dispatchEvent(leaving)")
    page.script("window.release()")
    page.saved()
    assert list(server.labels()) == names  # in order
    page.script(FAKE_ANSWER, "The disk is full; free some space.", 507)
    page.label(3)
    page.until(lambda: page.text("#banners") == "The disk is full; free some space.")
    page.until(lambda: page.text("#unsaved") == "3 unsaved")
    page.script("window.fetch = window.realFetch")
    page.saved()
    assert len(server.labels()) == 7
    server.session.show(failure="computing features of the images failed: no memory")
    page.until(lambda: page.text("#banners") == "Computing features of the images failed: no memory.")
    server.session.show(failure=None)
    page.until(lambda: page.text("#banners") == "")


def test_an_image_that_is_damaged_can_be_skipped_but_not_labeled(page: LabelPage, start: Start, tmp_path: Path) -> None:
    for path in make_photographs(tmp_path / "photos", 60).glob("disk-*.jpg"):
        path.write_bytes(b"not an image")
    server = start(count=0)
    for _ in range(12):
        page.until(lambda: page.all("#label-frame img") or "Loading" not in page.text("#label-frame"))
        if not page.all("#label-frame img"):
            break
        page.press_on("s")
    broken = page.text("#image-name")
    assert broken in page.text("#label-frame")
    page.press("1")
    assert page.text("#image-name") == broken
    page.press("s")
    page.until_after(broken)
    page.saved()
    assert server.labels() == {}


@pytest.mark.parametrize("classes", [2, 60])
def test_on_a_phone_nothing_is_too_wide_and_targets_are_large_enough(
    page: LabelPage, start: Start, classes: int
) -> None:
    server = start(classes=(*(f"class {number}" for number in range(classes - 1)), "a long name " * 8))
    page.emulate("setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    page.open(server.address)
    page.name()
    small = """return [...document.querySelectorAll("button, nav a, input, select, summary")].filter((one) => {
      const { width, height } = one.getBoundingClientRect();
      return width && (width < 44 || height < 44);
    }).map((one) => one.outerHTML)"""
    for key in ("", "g", "m", "t"):
        page.press(key)
        time.sleep(0.3)
        assert page.script("return document.documentElement.scrollWidth") <= 390, key
        assert page.script(small) == [], key
    page.press(Keys.ESCAPE)
    height = page.script("return document.querySelector('#label-frame').getBoundingClientRect().height")
    assert height > 200
    bottom = page.script("return document.querySelector('#label-actions').getBoundingClientRect().bottom")
    assert 760 < bottom <= 844  # where the thumb is


def test_everything_has_a_name_for_screen_readers_is_reached_with_tab_and_can_be_dark(
    page: LabelPage, start: Start
) -> None:
    page.emulate("setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    start()
    page.name()
    color = page.script("return getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, color[4:-1].split(","))) < 380
    for key in ("", "g", "m", "t", "?"):
        page.press(key)
        time.sleep(0.3)
        inside = "dialog " if key == "?" else ""  # what is behind a dialog cannot be reached
        kinds = ("button", "a", "select", "input", "img", "[role=img]")
        found = page.all(", ".join(inside + kind for kind in kinds))
        shown = [one for one in found if one.is_displayed()]
        assert [one.get_attribute("outerHTML") for one in shown if not one.accessible_name.strip()] == []
    page.press(Keys.ESCAPE)
    page.press(Keys.ESCAPE)
    reached = []
    for _ in range(20):
        page.press(Keys.TAB)
        reached.append(page.script("return document.activeElement.textContent"))
        assert page.script("return getComputedStyle(document.activeElement).outlineStyle") != "none"
        if "Rename or merge" in reached:
            break
    assert any("disk" in text for text in reached)
    assert page.one("#message").get_attribute("role") == "status"
