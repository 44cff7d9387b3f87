"""Every request of the page and its answer."""

import errno
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from image_folders import class_folders, picture
from labeling_server import ADDRESS, Page, colored_images
from PIL import Image

OpenPage = Callable[..., Page]


def counts(page: Page) -> list[tuple[int, str, int]]:
    return [(one["id"], one["name"], one["count"]) for one in page.state["classes"]]


def give_guesses(page: Page) -> None:
    """A model that predicts the true class, the more confident the larger the number, and doubts the label of 0."""
    page.session.use_model({number: (number % 3, number / 30) for number in range(30)}, [], {0: (1, 0.9)})


def test_a_label_is_in_the_journal_when_the_request_is_answered_and_a_repeated_request_is_one_step(page: Page) -> None:
    number, none, skipped = [one["number"] for one in page.next(3) if not one["check"]]
    for _ in range(2):
        state = page.label(number, 0)["state"]
        assert (state["labeled"], state["undo"], state["classes"][0]["count"]) == (1, 1, 1)
        assert page.rows()[3:] == [[f"{number:03d}.png", "red", "train", "hand"]]  # after those of three classes
    page.label(none, "none")
    state = page.label(skipped, None)["state"]
    assert (state["labeled"], state["none"], state["skipped"]) == (1, 1, 1)
    assert [row[1:] for row in page.rows()[-2:]] == [["", "none", "hand"], ["", "", "skip"]]
    assert page.get("/history", client="me", at=skipped)["image"]["label"] == "none"


def test_every_fifth_image_is_a_random_check_without_a_guess_whose_label_is_for_testing(page: Page) -> None:
    give_guesses(page)
    images = page.next(10)
    assert [one["check"] for one in images] == [False, False, False, False, True] * 2
    assert [one["guess"] is None for one in images] == [one["check"] for one in images]
    assert images[4]["why"] == "random check"
    page.label(images[4]["number"], 2)
    assert page.rows()[-1][1:] == ["blue", "test", "audit"]
    page.label(images[4]["number"], 1)  # corrected, still for testing
    assert page.rows()[-1][1:] == ["green", "test", "audit"]


def test_two_clients_get_different_images_one_client_the_same_again_and_all_are_handed_out(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, yours = ([one["number"] for one in page.next(client=client)] for client in ("me", "you"))
    assert not set(mine) & set(yours)
    assert [one["number"] for one in page.next()] == mine
    assert [one["number"] for one in page.next(after=mine[0])][:7] == mine[1:]
    # Those of a client that has not asked for a while are given to others.
    monkeypatch.setattr("rankingmatch.labeling.selection.RESERVED", 0)
    seen: list[int] = []
    while images := page.next(4):
        for one in images:
            seen.append(one["number"])
            page.label(one["number"], one["number"] % 3)
    assert sorted(seen) == list(range(30))


def test_a_new_order_comes_after_the_images_that_a_client_may_have_loaded(page: Page) -> None:
    loaded = [one["number"] for one in page.next(20)]
    free = [number for number in range(30) if number not in page.session.checks and number not in loaded[:16]]
    page.session.use_model({}, [(number, "new") for number in free[::-1]], {})
    found = page.next(18)
    assert [one["number"] for one in found[:16]] == loaded[:16]
    assert [one["number"] for one in found[16:] if one["why"] == "new"] == free[::-1][: len(found[16:])]


def test_labels_and_changes_of_classes_are_undone_step_by_step_also_after_a_restart(
    tmp_path: Path, page: Page, open_page: OpenPage
) -> None:
    page.label(0, 0)
    page.label(1, 1)
    page.post("/classes", add="  teal ")
    page.post("/classes", rename=0, name="crimson")
    page.post("/classes", merge=1, into=0)
    assert counts(page) == [(0, "crimson", 2), (2, "blue", 0), (3, "teal", 0)]
    page = open_page(tmp_path / "photos")
    assert [page.post("/undo", client="me")["number"] for _ in range(3)] == [None] * 3
    assert counts(page) == [(0, "red", 1), (1, "green", 1), (2, "blue", 0)]
    answers = [page.post("/undo", client="me") for _ in range(2)]
    assert [(one["number"], one["image"]["label"]) for one in answers] == [(1, None), (0, None)]
    assert "nothing to undo" in page.post("/undo", 400, client="me")["error"]
    assert page.next()[0]["number"] == 0  # what was undone comes first


def test_the_grid_has_unlabeled_images_that_are_not_random_checks_and_accepting_them_is_one_step(page: Page) -> None:
    give_guesses(page)
    page.label(3, 0)
    expected = [n for n in range(27, -1, -3) if n != 3 and n not in page.session.checks]
    answer = page.get("/grid", **{"class": 0}, order="sure", page=0)
    assert [one["number"] for one in answer["images"]] == expected
    assert (answer["pages"], answer["images"][0]["guess"]["class"]) == (1, 0)
    assert page.get("/grid", **{"class": 0}, order="unsure", page=0)["images"][0]["number"] == expected[-1]
    assert page.get("/grid", **{"class": 0}, page=5)["images"] == []
    page.post("/accept", client="me", numbers=[*expected[:4], expected[0], 3, page.session.checks[0]], **{"class": 1})
    assert counts(page) == [(0, "red", 1), (1, "green", 4), (2, "blue", 0)]
    assert {tuple(row[1:]) for row in page.rows()[-4:]} == {("green", "train", "accepted")}
    assert page.post("/undo", client="me")["state"]["labeled"] == 1


def test_mistakes_are_labels_that_the_model_contradicts_until_they_are_changed_or_kept(page: Page) -> None:
    page.label(0, 0)
    give_guesses(page)
    (mistake,) = page.get("/mistakes")["images"]
    assert (mistake["number"], mistake["label"], mistake["guess"]) == (0, 0, {"class": 1, "confidence": 0.9})
    page.label(0, 1)
    assert page.get("/mistakes")["images"] == []
    page.label(0, 0)
    for _ in range(2):  # the second request repeats the first, because its answer was lost
        page.label(0, 0, origin="kept")
    assert [row[-1] for row in page.rows()[-2:]] == ["hand", "kept"]
    assert page.get("/mistakes")["images"] == []
    page.post("/undo", client="me")
    assert len(page.get("/mistakes")["images"]) == 1


def test_images_are_upright_jpegs_of_bounded_size(tmp_path: Path, open_page: OpenPage) -> None:
    picture(tmp_path / "photos" / "a.png", size=(2000, 500))
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90 degrees
    Image.new("RGB", (300, 100), "red").save(tmp_path / "photos" / "b.jpg", exif=exif)
    client = open_page(tmp_path / "photos").client
    large = Image.open(io.BytesIO(client.get("/image/0").content))
    assert (large.format, large.mode, large.size) == ("JPEG", "RGB", (1600, 400))
    assert Image.open(io.BytesIO(client.get("/image/0?size=thumbnail").content)).size == (256, 64)
    response = client.get("/image/1?size=thumbnail")
    assert Image.open(io.BytesIO(response.content)).size == (85, 256)
    assert response.headers["cache-control"].startswith("private, max-age")
    assert "Cookie" in response.headers["vary"]


def test_an_image_that_vanished_or_is_damaged_gives_a_sentence_and_is_not_handed_out(page: Page) -> None:
    (page.session.root / "004.png").unlink()
    (page.session.root / "005.png").write_bytes(b"no image")
    (page.session.root / "006.png").write_bytes(b"P6 60000 60000 255\n" + b"\0" * 1000)
    for number, reason in ((4, "No such file"), (5, "is not an image"), (6, "too many pixels")):
        response = page.client.get(f"/image/{number}")
        assert response.status_code == 404
        assert reason in response.json()["error"]
    assert {one["number"] for one in page.next(30)} == set(range(30)) - {4, 5, 6}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *(("/label", {"number": number, "class": 0}) for number in (99, -1, "a", True, None)),
        *(("/label", {"number": 1, "class": choice}) for choice in (7, [0])),
        *(("/undo", body) for body in ({}, {"client": "a" * 201})),
        *(("/classes", body) for body in ({}, {"add": 3}, {"rename": 0}, {"merge": 0, "into": 0})),
        *(("/classes", {"add": name}) for name in ("", "   ", "a" * 101, "a\nb", "\x00", "\ud800", "red", " red ")),
        ("/classes", {"rename": 0, "name": "blue"}),
        *(("/accept", {"class": 0, "numbers": numbers}) for numbers in ("all", [10**9])),
        ("/train", {}),
    ],
)
def test_a_bad_request_is_answered_with_a_sentence_and_changes_nothing(page: Page, path: str, body: object) -> None:
    headers = {"Origin": ADDRESS, "Content-Type": "application/json"}
    response = page.client.post(path, content=json.dumps(body), headers=headers)  # a half of a character is escaped
    assert response.status_code == 400
    sentence = response.json()["error"]
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert not page.session.journal.path.exists()


def test_a_page_that_is_older_than_the_scan_cannot_label(page: Page) -> None:
    page.post("/label", number=1, scan=page.state["scan"], **{"class": 0})
    assert "reload" in page.post("/label", 409, number=2, scan="another", **{"class": 0})["error"]
    assert page.state["labeled"] == 1


def test_a_full_disk_is_a_sentence_and_the_page_can_try_again(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    before = page.state
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        assert page.label(1, 1, status=507)["error"].startswith("The disk is full")
    state = page.state
    assert state["problem"] is not None
    assert {**state, "version": 0, "problem": None} == {**before, "version": 0}
    assert page.label(1, 1)["state"]["problem"] is None
    assert page.state["labeled"] == 1


def test_a_folder_that_was_deleted_before_the_first_label_is_not_created_again(page: Page) -> None:
    shutil.rmtree(page.session.root)
    assert "was deleted by another program" in page.label(0, 0, status=507)["error"]
    assert "was deleted" in page.state["problem"]
    assert not page.session.root.exists()


def test_labels_of_class_folders_count_and_are_saved_with_the_first_label(tmp_path: Path, open_page: OpenPage) -> None:
    folder = class_folders(tmp_path / "photos", each=2)
    colored_images(folder / "unlabeled", 4)
    page = open_page(folder)
    assert counts(page) == [(0, "blue", 2), (1, "green", 2), (2, "red", 2)]
    assert not page.session.journal.path.exists()
    page.label(page.next(1)[0]["number"], 0)
    assert [row[-1] for row in page.rows()] == ["given"] * 9 + ["hand"]
    for again in (page, open_page(folder)):
        assert (again.state["labeled"], again.state["undo"]) == (7, 1)


def test_export_makes_class_folders_with_links(page: Page) -> None:
    page.post("/classes", add="../up")
    page.label(0, 0)
    page.label(1, 3)
    path = Path(page.post("/export")["path"])
    assert path == page.session.root.with_name("photos-labeled")
    assert (path / "labeled" / "red" / "000.png").resolve() == (page.session.root / "000.png").resolve()
    assert [entry.name for entry in (path / "labeled").iterdir() if entry.name != "red"] == ["_.._up"]
    assert len(list((path / "unlabeled").iterdir())) == 28
    assert Path(page.post("/export")["path"]).name == "photos-labeled-2"
