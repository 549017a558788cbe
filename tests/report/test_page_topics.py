"""The topics of the page in a real Chromium: the panel, the map and the table."""

import csv
import io
import re

import jax.numpy as jnp
import numpy as np
import pytest
from embeddings import embedding, merged_levels
from pages import BOXES, MINUS, ask, assert_topic, overlapping, question, shown_topic, shown_word

from dcdjax import Embedding, report


def test_it_opens_with_the_best_topic_and_a_word_of_it(opened, model):
    page = opened()
    assert_topic(page, model, 0)
    heading = page.locator("#topic-heading").text_content()
    label = heading.removeprefix("Topic 0 ").split(" · ")
    assert shown_word(page) == label[0] == question(page).input_value()
    assert set(label) < {one.word for one in model.topics(20)[0].words}
    assert page.locator("#size").text_content() == "120 words, 8 topics, 12 subtopics"


def test_topics_are_walked_through_in_their_order(opened, model):
    page = opened()
    after, before = (page.get_by_role("button", name=name) for name in ("Next topic", "Previous topic"))
    before.click(force=True)
    assert (shown_topic(page), before.get_attribute("aria-disabled")) == (0, "true")
    for number in range(1, 8):
        after.click()
        assert_topic(page, model, number)
    assert after.get_attribute("aria-disabled") == "true"
    before.click()
    assert shown_topic(page) == 6
    assert "junk" in page.locator("#canvas circle.chosen").get_attribute("aria-label")


def test_topics_are_found_by_their_words_and_numbers(opened, model):
    page = opened()
    box = question(page)
    topic = model.topics(20)[4]
    own = next(one.word for one in topic.words[:3] if one.word.startswith("word"))
    box.fill(own)
    found = page.get_by_role("option", name=re.compile("^Topic")).locator("b").all_text_contents()
    has_it = [one.number for one in model.topics(20) if own in [word.word for word in one.words]]
    assert "4" in found
    assert set(map(int, found)) <= set(has_it) or len(found) == 4
    page.get_by_role("option", name=re.compile("^Topic 4 ")).click()
    assert_topic(page, model, 4)
    assert page.evaluate("document.activeElement.id") == "topic-heading"
    for typed, number in (("topic 6", 6), ("#2", 2), ("5", 5)):
        ask(page, typed)
        assert shown_topic(page) == number
    ask(page, "topic 8")  # there is none
    assert shown_topic(page) == 5
    assert page.get_by_role("alert").text_content().startswith("topic 8 is not among the 120 words.")


def test_a_topic_on_the_map_is_clicked(opened, model):
    page = opened()
    circles = page.locator("#canvas circle")
    assert circles.count() == 8
    for number in (3, 0):
        circles.nth(number).click()
        assert_topic(page, model, number)
        assert circles.nth(number).get_attribute("aria-selected") == "true"
        assert page.locator("#canvas circle.chosen").count() == 1
    word = page.locator("#topic-words a").nth(1)
    name = word.text_content()
    word.click()
    assert shown_word(page) == name
    assert shown_topic(page) == model.topics_of(name, 1)[0].number
    page.locator("#like-topics a").first.click()
    assert page.locator("#canvas circle.chosen").get_attribute("data-topic") == str(shown_topic(page))


def test_exploring_the_map_leaves_it_where_it_is(opened, model):
    page = opened(viewport={"width": 1280, "height": 640})
    circle = page.locator("#canvas circle").nth(2)
    box = circle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 1, y + 1)  # nobody's hand is quite still
    page.mouse.up()
    assert_topic(page, model, 2)
    assert page.evaluate("scrollY") == 0
    box = circle.bounding_box()
    assert (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) == pytest.approx((x, y), abs=0.01)
    page.locator("#word-topics a").first.click()  # elsewhere, the answer comes into sight
    assert 0 <= page.locator("#topic-heading").bounding_box()["y"] < 640


def test_area_is_weight_and_topics_do_not_hide_each_other(opened, tmp_path):
    many = embedding(80, (70,))
    report.page(many, progress=False).save(tmp_path / "many.html")
    circles = opened(tmp_path / "many.html").locator("#canvas circle")
    places = circles.evaluate_all(
        "all => all.map(one => ['cx', 'cy', 'r'].map(name => +one.getAttribute(name)))"
    )
    areas = [r * r for _, _, r in places]
    weights = [topic.weight for topic in many.topics(1)]
    assert [area / sum(areas) for area in areas] == pytest.approx(weights, rel=1e-3)
    for place, (x, y, r) in enumerate(places):
        for x2, y2, r2 in places[:place]:
            assert ((x - x2) ** 2 + (y - y2) ** 2) ** 0.5 > 0.95 * (r + r2)


def test_topics_that_are_alike_lie_near_each_other(opened, tmp_path):
    # Two groups of topics, which have no word in common.
    rng = np.random.default_rng(0)
    W = np.kron(np.eye(2), np.ones((40, 8))) * rng.random((80, 16)) + 1e-4
    words = tuple(f"w{n}" for n in range(80))
    path = tmp_path / "groups.html"
    groups = Embedding(words, jnp.asarray(W / W.sum(axis=1, keepdims=True)))
    report.page(groups, progress=False).save(path)
    page = opened(path)
    places = np.array(
        page.locator("#canvas circle").evaluate_all(
            "all => all.map(one => [Number(one.getAttribute('cx')), Number(one.getAttribute('cy'))])"
        )
    )
    far = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(far, np.inf)
    nearest = far.argmin(axis=1)
    assert np.array_equal(nearest < 8, np.arange(16) < 8)


# --- The map ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1200, 390])
def test_labels_have_three_telling_words_and_do_not_overlap(opened, tmp_path, width):
    words = (*(f"sign{n}" for n in range(57)), "—", "\u200b", ",", "wide" * 12, "iiiii", "漢", "x", "1997")
    many = embedding(len(words), (50,), words=words, levels=merged_levels(50, 50, 50)[:1])
    report.page(many, progress=False).save(tmp_path / "labels.html")
    page = opened(tmp_path / "labels.html", viewport={"width": width, "height": 900})
    labels = page.locator(".labels g")
    assert labels.count() >= (35 if width > 1000 else 12)
    for label in labels.all():
        shown = label.locator("text").all_text_contents()
        assert len(shown) == len(set(shown)) == 3
        assert not {"—", "\u200b", ","} & set(shown)
        number = int(label.get_attribute("data-label"))
        known = {one.word for one in many.topics(20)[number].words}
        assert all(word in known or word.startswith("widewide") for word in shown)
    boxes = labels.evaluate_all(BOXES)
    assert overlapping(boxes) == []
    canvas = page.locator("#canvas").bounding_box()
    assert all(canvas["x"] <= box["left"] < box["right"] <= canvas["x"] + canvas["width"] for box in boxes)
    # The useful topics come first: of those without a label, none comes before all the others.
    drawn = sorted(int(label.get_attribute("data-label")) for label in labels.all())
    assert drawn[0] == 0
    assert np.mean(drawn) <= 24.5
    page.get_by_role("button", name="Zoom in").click()
    assert overlapping(labels.evaluate_all(BOXES)) == []


def test_labels_wait_until_the_topics_stand_still(opened, tmp_path):
    # So many topics take several slices of the layout's work.
    report.page(embedding(160, (150,)), num_neighbors=2, progress=False).save(tmp_path / "many.html")
    page = opened(tmp_path / "many.html", settled=False)
    places = page.evaluate(
        """async () => {
          const seen = new Set();
          for (let frame = 0; !seen.size || frame < 40; frame++) {
            const circles = Array.from(document.querySelectorAll("#canvas circle"));
            if (circles.length && document.querySelector(".labels g")) {
              seen.add(circles.map((one) => `${one.getAttribute("cx")} ${one.getAttribute("cy")}`).join());
            }
            await new Promise(requestAnimationFrame);
          }
          return seen.size;
        }"""
    )
    assert places == 1


def test_the_map_is_used_by_keyboard_alone(opened, model):
    page = opened()
    focused = "document.activeElement.getAttribute('data-topic')"
    page.locator("#zoom-all").focus()
    page.keyboard.press("Tab")
    first = page.evaluate(focused)
    assert first == str(shown_topic(page))  # one stop, at the topic that is chosen
    assert page.locator("#canvas .tip").is_visible()
    seen = {first}
    for key in ("ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown") * 4:
        page.keyboard.press(key)
        seen.add(page.evaluate(focused))
    assert len(seen) > 2
    here = page.evaluate(focused)
    page.keyboard.press("Enter")
    assert_topic(page, model, int(here))
    page.locator("#zoom-all").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate(focused) is None


def test_the_keyboard_does_not_lose_the_map(opened):
    page = opened()
    # What is in focus is in sight, however much is not.
    for _ in range(5):
        page.get_by_role("button", name="Zoom in").click()
    page.locator("#zoom-all").focus()
    page.keyboard.press("Tab")
    canvas = page.locator("#canvas").bounding_box()
    for key in ("ArrowRight",) * 4 + ("ArrowLeft",) * 8 + ("ArrowDown",) * 4:
        page.keyboard.press(key)
        box = page.locator(":focus").bounding_box()
        assert canvas["x"] - 1 <= box["x"] + box["width"] / 2 <= canvas["x"] + canvas["width"] + 1
        assert canvas["y"] - 1 <= box["y"] + box["height"] / 2 <= canvas["y"] + canvas["height"] + 1
    dashed = "one => getComputedStyle(one).strokeDasharray !== 'none'"
    assert page.locator("#canvas circle").evaluate_all(f"all => all.filter({dashed}).length") == 1


def test_a_window_that_changes_shows_all_of_the_map(opened):
    page = opened()
    page.get_by_role("button", name="Zoom in").click()
    page.set_viewport_size({"width": 500, "height": 900})
    page.wait_for_timeout(200)
    canvas = page.locator("#canvas").bounding_box()
    for circle in page.locator("#canvas circle:visible").all():
        box = circle.bounding_box()
        assert canvas["x"] <= box["x"] + box["width"] / 2 <= canvas["x"] + canvas["width"]


def test_the_map_is_zoomed(opened):
    page = opened()
    transform = "document.querySelector('#canvas svg > g').getAttribute('transform')"
    page.get_by_role("button", name="Zoom in").click()
    assert "scale(1.6)" in page.evaluate(transform)
    page.get_by_role("button", name="All", exact=True).click()
    assert "scale(1)" in page.evaluate(transform)


def test_the_table_is_sorted_and_junk_comes_last(opened, model):
    page = opened()
    topics = model.topics(10)
    assert [topic.junk for topic in topics] == [False] * 6 + [True] * 2
    orders = {
        "coherence": lambda one: -one.coherence,
        "share of the text": lambda one: -one.weight,
        "topic": lambda one: 0,
    }
    for name, order in orders.items():
        page.locator("#topics").get_by_role("button", name=name).click()
        shown = page.locator("#topics tbody a").all_text_contents()
        expected = sorted(topics, key=lambda one: (one.junk, order(one), one.number))
        assert [int(text) for text in shown] == [one.number for one in expected]
        marked = page.locator("#topics th[aria-sort]:not([aria-sort=none])")
        assert marked.text_content() == name
    tags = page.locator("#topics tbody tr.junk .tag")
    assert tags.all_text_contents() == ["junk", "junk"]
    assert f"hardly ever stand in the same passage (coherence below {MINUS}0.30)" in tags.first.get_attribute(
        "title"
    )
    assert "marked as junk come last" in page.locator("#junk-note").text_content()
    page.locator("#topics tbody a").nth(4).click()
    assert_topic(page, model, 4)


def test_the_table_is_downloaded_for_a_spreadsheet(opened, tmp_path):
    words = ("=cmd()", 'a "b", c', "-dash", "Café", "e", "f")
    one = embedding(6, (2, 3), words=words, levels=merged_levels(5, 4, 2))
    report.page(one, progress=False).save(tmp_path / "words.html")
    page = opened(tmp_path / "words.html")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as CSV").click()
    assert download.value.suggested_filename == "topics.csv"
    download.value.save_as(tmp_path / "topics.csv")
    text = (tmp_path / "topics.csv").read_bytes()
    assert text.startswith("\ufeff".encode())
    rows = list(csv.DictReader(io.StringIO(text.decode("utf-8-sig"), newline="")))
    topics, parts = one.topics(20), one.topics(8, subtopics=True)
    assert [int(row["number"]) for row in rows] == [0, 1]
    for row, topic in zip(rows, topics, strict=True):
        assert float(row["share"]) == pytest.approx(topic.weight, rel=1e-6)
        assert float(row["coherence"]) == one.topics(10)[topic.number].coherence
        listed = ", ".join(word.word for word in topic.words)
        # No spreadsheet takes a word for a formula.
        assert row["words"] == (f"'{listed}" if listed[0] in "=-" else listed)
        told = [f"{n}: {', '.join(word.word for word in parts[n].words)}" for n in topic.subtopics]
        assert row["subtopics"] == ("; ".join(told) if len(told) > 1 else "")
