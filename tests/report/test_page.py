"""The page as people use it: in a real Chromium, by mouse, keyboard and touch; offline, from the disk."""

import csv
import io
import json
import os
import re
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from embeddings import HOSTILE, embedding, merged_levels

from dcdjax import Embedding, report

MINUS = "\u2212"
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
    None,
)


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no browser: Debian's package is chromium")
    driver = pytest.importorskip("playwright.sync_api", reason="no Playwright to drive a browser with")
    # Nothing of its own to the network; as root, its sandbox does not work.
    arguments = ["--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def model():
    return embedding(120, (6, 9), levels=merged_levels(15, 12, 8))


@pytest.fixture(scope="module")
def file(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    report.page(model, progress=False).save(path)
    return path


@pytest.fixture
def opened(browser, file):
    """Opens a page, and says in the end if anything went wrong in it."""
    contexts, troubles, requests = [], [], []

    def open_page(path=file, address="", *, settled=True, heard=True, **options):
        options = {"viewport": {"width": 1200, "height": 900}, "reduced_motion": "reduce", **options}
        contexts.append(browser.new_context(offline=True, **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(20_000)
        if heard:
            page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"{path.as_uri()}{address}")
        if settled:
            page.wait_for_selector("svg[data-settled]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []
    assert [url for url in requests if not url.startswith("file:")] == []


def question(page):
    return page.get_by_role("combobox", name="Look up a word")


def ask(page, word):
    question(page).fill(word)
    question(page).press("Enter")


def shown_word(page):
    return page.locator("#word-heading").text_content()


def neighbors(page):
    """The words and probabilities that are shown."""
    rows = page.locator("#neighbors > li")
    words = rows.locator("> a").all_text_contents()
    return words, [float(text) for text in rows.locator("> .number").all_text_contents()]


def assert_answers(page, model, word):
    expected = model.neighbors(word, 20)
    words, probabilities = neighbors(page)
    assert words == [one.word for one in expected]
    assert probabilities == pytest.approx([one.probability for one in expected], rel=6e-3)  # three digits


# --- Words ------------------------------------------------------------------------------------------


def test_a_word_is_typed_and_its_neighbors_are_those_of_python(opened, model):
    page = opened()
    for word in ("word7", "word93"):
        ask(page, word)
        assert shown_word(page) == word
        assert_answers(page, model, word)
        count = model.word_counts[model.key_to_index[word]]
        assert page.locator("#word-note").text_content() == f"{count} times in the corpus"
        own = [one for one in model.topics_of(word, 8) if one.probability >= 0.005]
        shown = page.locator("#word-topics li")
        assert [int(text) for text in shown.locator("b").all_text_contents()] == [one.number for one in own]
        percents = [float(text.rstrip(" %")) for text in shown.locator(".number").all_text_contents()]
        assert percents == pytest.approx([100 * one.probability for one in own], rel=0.06, abs=0.6)
    assert page.locator("#status").text_content() == "20 neighbors of word93"
    assert page.title() == "word93 · a <b>corpus</b>"


def test_each_neighbor_is_explained_by_its_topics(opened, model):
    page = opened()
    ask(page, "word7")
    for rank in (0, 4):
        row = page.locator("#neighbors > li").nth(rank)
        neighbor = row.locator("> a").text_content()
        why = row.get_by_role("button", name=f"Why {neighbor}?")
        if why.get_attribute("aria-expanded") == "false":  # the first is open from the beginning
            why.click()
        assert row.locator(".why").is_visible()
        expected = model.explain("word7", neighbor, 3)
        total = model.similarity("word7", neighbor)
        lines = row.locator(".why p", has=page.locator("b"))
        told = [one for one in expected if one.probability / total > 0.012]
        numbers = [int(text) for text in lines.locator("b").all_text_contents()]
        assert numbers[: len(told)] == [one.number for one in told]
        for place, one in enumerate(told):
            share = float(lines.nth(place).locator(".number").text_content().rstrip(" %"))
            part = 100 * one.probability / total
            assert share == pytest.approx(part, abs=0.51 + 0.0095 * part)
        why.click()
        assert row.locator(".why").is_hidden()


def test_a_neighbor_is_followed_and_there_is_a_way_back(opened, model):
    page = opened()
    first = shown_word(page)
    ask(page, "word7")
    follow = page.locator("#neighbors > li > a").nth(2)
    second = follow.text_content()
    follow.click()
    assert shown_word(page) == second
    assert_answers(page, model, second)
    assert page.evaluate("document.activeElement.id") == "word-heading"
    assert question(page).input_value() == second
    page.go_back()
    assert shown_word(page) == "word7"
    assert_answers(page, model, "word7")
    page.go_forward()
    assert shown_word(page) == second
    page.go_back()
    page.go_back()  # to what was there when it was opened
    assert shown_word(page) == first
    assert_answers(page, model, first)


def test_what_is_asked_for_twice_is_remembered_once(opened):
    page = opened()
    first = shown_word(page)
    for _ in range(3):
        ask(page, "word7")
    page.go_back()
    assert shown_word(page) == first


def test_words_are_completed_by_keyboard(opened, model):
    page = opened()
    box = question(page)
    box.fill("WORD1")
    options = page.get_by_role("option", name=re.compile("^word"))
    # The same word first, then those that begin so, the frequent first: that is their order.
    assert options.all_text_contents() == ["word1", *(f"word{n}" for n in range(10, 17))]
    assert box.get_attribute("aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    active = box.get_attribute("aria-activedescendant")
    assert page.locator(f"#{active}").text_content() == "word10"
    assert page.locator(f"#{active}").get_attribute("aria-selected") == "true"
    page.keyboard.press("Enter")
    assert shown_word(page) == "word10"
    assert page.locator("#completions").is_hidden()
    box.fill("cafe")
    page.locator("#completions li").first.click()
    assert shown_word(page) == "Café"
    box.fill("word")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Escape")
    assert page.locator("#completions").is_hidden()
    assert shown_word(page) == "Café"


def test_an_unknown_word_is_answered_with_its_likes(opened):
    page = opened()
    before = shown_word(page)
    ask(page, "wrod11")
    alert = page.get_by_role("alert")
    assert alert.text_content().startswith("wrod11 is not among the 120 words. Similar:")
    assert shown_word(page) == before
    alert.get_by_role("link", name="word11", exact=True).click()
    assert shown_word(page) == "word11"
    assert alert.text_content() == ""
    page.mouse.wheel(0, 1500)
    ask(page, "<b>?")
    assert alert.text_content() == "<b>? is not among the 120 words."
    place = alert.bounding_box()  # in sight, wherever one is
    assert 0 <= place["y"] < place["y"] + place["height"] <= 900


def test_a_part_of_a_word_is_not_taken_for_it(opened):
    page = opened()
    before = shown_word(page)
    ask(page, "ord11")
    assert shown_word(page) == before
    assert page.get_by_role("alert").get_by_role("link").first.text_content() == "word11"
    question(page).fill("ord10")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert shown_word(page) == "word10"


# --- Topics -----------------------------------------------------------------------------------------


def shown_topic(page):
    return int(page.locator("#topic-heading .kicker").text_content().removeprefix("Topic "))


def percents(rows):
    return [float(text.rstrip(" %")) for text in rows.locator(".number").all_text_contents()]


def assert_topic(page, model, number):
    assert shown_topic(page) == number
    topic = model.topics(20)[number]
    rows = page.locator("#topic-words li")
    assert rows.locator("a").all_text_contents() == [one.word for one in topic.words]
    W = np.asarray(model.topic_probabilities())
    shares = [100 * W[model.key_to_index[one.word], number] for one in topic.words]
    assert percents(rows) == pytest.approx(shares, rel=0.06, abs=0.51)
    note = page.locator("#topic-note").text_content()
    assert note.endswith(f"coherence {model.topics(10)[number].coherence:.2f}".replace("-", MINUS))
    parts = [model.topics(8, subtopics=True)[part] for part in topic.subtopics]
    shown = page.locator("#subtopics li")
    assert page.locator("#parts").is_visible() == (len(parts) > 1)
    if len(parts) > 1:
        words = [row.locator("a").all_text_contents() for row in shown.all()]
        assert words == [[one.word for one in part.words] for part in parts]
        assert percents(shown) == pytest.approx(
            [100 * part.weight / topic.weight for part in parts], abs=0.51
        )
    assert page.locator("#topic-junk").is_visible() == topic.junk


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


BOXES = "all => all.map(one => one.getBoundingClientRect().toJSON())"


def overlapping(boxes):
    return [
        (one, other)
        for place, one in enumerate(boxes)
        for other in boxes[:place]
        if min(one["right"], other["right"]) > max(one["left"], other["left"])
        and min(one["bottom"], other["bottom"]) > max(one["top"], other["top"])
    ]


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


def test_labels_wait_until_the_topics_stand_still(opened):
    page = opened(settled=False)
    places = page.evaluate(
        """async () => {
          const seen = new Set();
          for (let frame = 0; frame < 40; frame++) {
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


# --- What surrounds them ----------------------------------------------------------------------------


def test_few_tabs_lead_to_each_part(opened):
    page = opened()
    page.keyboard.press("Tab")
    assert page.locator(":focus").text_content() == "Skip to the map"
    assert page.locator(":focus").bounding_box()["y"] >= 0  # it is seen once it has the focus
    parts = {"Skip to the map": "map", "Skip to the topic": "topic", "Skip to the word": "word"}
    for name, part in {**parts, "Skip to all topics": "topics"}.items():
        page.get_by_role("link", name=name).focus()
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == f"{part}-heading"
    assert "#topics" not in page.url
    page.get_by_role("link", name="Skip to the map").focus()
    stops = 0
    while page.evaluate("document.activeElement.getAttribute('data-topic')") is None:
        page.keyboard.press("Tab")
        stops += 1
    assert stops <= 8


def test_the_help_fits_the_device(opened):
    mouse, touch = "Ctrl and the mouse wheel", "two fingers"
    told = opened().locator("#map .note").inner_text().replace("\n", " ")
    assert mouse in told
    assert touch not in told
    told = opened(has_touch=True, is_mobile=True).locator("#map .note").inner_text().replace("\n", " ")
    assert touch in told
    assert mouse not in told


def test_the_names_of_the_axes_cover_no_number(opened, tmp_path):
    history = {"objective": np.linspace(-123456.7, -123455.1, 30)[::-1][None]}
    report.page(embedding(12, (3,), history=history), progress=False).save(tmp_path / "curve.html")
    for width in (1200, 360):
        page = opened(tmp_path / "curve.html", viewport={"width": width, "height": 800})
        page.locator("#training").scroll_into_view_if_needed()
        page.locator("#chart svg").wait_for()
        texts = page.locator("#chart text")
        assert texts.count() > 6
        boxes = texts.evaluate_all(BOXES)
        assert overlapping(boxes) == []
        chart = page.locator("#chart").bounding_box()
        assert all(chart["x"] <= box["left"] for box in boxes)


def test_curve_and_provenance(opened):
    page = opened()
    told = (
        "start 1, 6 topics: from 9.000 to 4.000 in 2 steps; start 2, 9 topics: from 8.000 to 4.500 in 3 steps"
    )
    chart = page.get_by_role("img", name=told)
    assert chart.locator(".curve").count() == 2
    assert page.locator("#chart-legend").text_content() == "start 1, 6 topicsstart 2, 9 topics"
    facts = page.locator("#facts").text_content()
    assert "corpusa <b>corpus</b>" in facts
    assert "tokens12,345" in facts
    page.get_by_text("The whole record").click()
    assert '"num_tokens": 12345' in page.locator("#record").text_content()


@pytest.mark.parametrize("word", HOSTILE)
def test_words_stay_text(opened, model, word):
    page = opened(settled=False)
    page.wait_for_selector("main:not([hidden])")
    # Half characters cannot be typed, nor told to Python.
    page.evaluate("word => question.value = JSON.parse(word)", json.dumps(word))
    question(page).press("Enter")
    told = "heading => JSON.stringify(heading.textContent)"
    assert json.loads(page.locator("#word-heading").evaluate(told)) == word
    told = "all => JSON.stringify(all.map(one => one.textContent))"
    names = json.loads(page.locator("#neighbors > li > a").evaluate_all(told))
    assert names == [one.word for one in model.neighbors(word, 20)]
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img").count() == 0
    assert page.locator("script").count() == 3


def test_scripts_that_got_in_would_not_run(opened):
    page = opened(settled=False, heard=False)  # the browser tells of what it refuses
    refused = []
    page.expose_function("refused", lambda directive: refused.append(directive))
    page.evaluate("addEventListener('securitypolicyviolation', event => refused(event.violatedDirective))")
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"hacked=1\">')")
    page.evaluate("document.head.append(Object.assign(document.createElement('script'), {text: 'hacked=1'}))")
    page.wait_for_timeout(200)
    assert {"img-src", "script-src-elem"} <= set(refused)
    assert page.evaluate("window.hacked") is None


def test_an_address_names_a_word_or_a_topic(opened, model, file):
    page = opened(address="#word=Caf%C3%A9")
    assert shown_word(page) == "Café"
    ask(page, "word5")
    again = opened(address=page.url.removeprefix(file.as_uri()))
    assert shown_word(again) == "word5"
    assert_topic(opened(address="#topic=5"), model, 5)
    back = opened(address="#topic=5")
    begun = shown_word(back)
    ask(back, "word5")
    back.go_back()
    assert (shown_word(back), shown_topic(back)) == (begun, 5)
    kept = opened(address="#word=word5")
    kept.locator("#canvas circle").nth(3).click()
    kept.reload()
    assert kept.url.endswith("#topic=3")
    assert (shown_word(kept), shown_topic(kept)) == ("word5", 3)
    first = shown_word(opened())
    for wrong in ("#word=nobody", "#topic=15", "#topic=x", "#word=%E0%A4%A", "#"):
        page = opened(address=wrong)
        begun = shown_word(page)
        told = page.get_by_role("alert").text_content()
        assert told == ("nobody is not among the 120 words." if "nobody" in wrong else "")
        assert (begun, shown_topic(page)) == (first, 0)


@pytest.mark.parametrize("width", [320, 390, 768])
def test_on_a_phone(opened, model, width):
    page = opened(viewport={"width": width, "height": 780}, has_touch=True, is_mobile=True)
    for word in ("word7", HOSTILE[-1]):
        ask(page, word)
        assert_answers(page, model, word)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#neighbors > li > a").nth(1).tap()
    box = page.locator("#word-heading").bounding_box()
    assert 0 <= box["y"] < 780
    page.locator("#word-topics a").nth(1).tap()  # the topic is told elsewhere: it comes into sight
    box = page.locator("#topic-heading").bounding_box()
    assert 0 <= box["y"] < 780
    header = page.locator("header").bounding_box()
    assert box["y"] >= header["y"] + header["height"] - 1


def test_in_a_notebook(opened, model, tmp_path):
    notebook = tmp_path / "notebook.html"
    shown = report.page(model, progress=False)._repr_html_()
    notebook.write_text(f"<!doctype html><title>notebook</title><p>Out[1]:</p>{shown}")
    page = opened(notebook, settled=False)
    frame = page.frame_locator("iframe")
    frame.locator("svg[data-settled]").wait_for()
    ask(frame, "word7")
    assert frame.locator("#neighbors > li > a").all_text_contents() == [
        one.word for one in model.neighbors("word7", 20)
    ]
    follow = frame.locator("#neighbors > li > a").nth(3)
    second = follow.text_content()
    follow.click()
    assert frame.locator("#word-heading").text_content() == second
    # Another window would be of the notebook, not of this page.
    follow = frame.locator("#neighbors > li > a").nth(1)
    second = follow.text_content()
    follow.click(modifiers=["ControlOrMeta"])
    assert frame.locator("#word-heading").text_content() == second
    assert len(page.context.pages) == 1
    frame.locator("#word-topics a").first.click()
    topic = model.topics_of(second, 1)[0].number
    assert frame.locator("#topic-heading .kicker").text_content() == f"Topic {topic}"
    assert page.title() == "notebook"
    # A cell that is closed and opened again.
    page.locator("iframe").evaluate("frame => frame.hidden = true")
    page.wait_for_timeout(100)
    page.locator("iframe").evaluate("frame => frame.hidden = false")
    assert frame.locator("#canvas circle").first.get_attribute("r") is not None


def test_in_a_cell_that_is_closed(opened, model, tmp_path):
    notebook = tmp_path / "notebook.html"
    shown = report.page(model, progress=False)._repr_html_()
    notebook.write_text(f"<!doctype html><title>notebook</title><div id=cell hidden>{shown}</div>")
    page = opened(notebook, settled=False)
    page.wait_for_timeout(500)
    page.locator("#cell").evaluate("cell => cell.hidden = false")
    frame = page.frame_locator("iframe")
    frame.locator("svg[data-settled]").wait_for()
    ask(frame, "word7")
    assert frame.locator("#word-heading").text_content() == "word7"


def test_words_that_only_name_topics_lead_nowhere(opened, model, tmp_path):
    report.page(model, max_words=40, progress=False).save(tmp_path / "few.html")
    page = opened(tmp_path / "few.html")
    assert page.locator("#size").text_content() == "the 40 most frequent of 120 words, 8 topics, 12 subtopics"
    frequent = sorted(range(120), key=lambda number: -model.word_counts[number])[:40]
    told = {model.words[number] for number in frequent}
    page.locator("#topics tbody a").first.click()
    names = [one.word for one in model.topics(20)[shown_topic(page)].words]
    assert page.locator("#topic-words li > :first-child").all_text_contents() == names
    assert page.locator("#topic-words a").all_text_contents() == [name for name in names if name in told]
    unknown = next(name for name in names if name not in told)
    ask(page, unknown)
    assert page.get_by_role("alert").text_content().startswith(f"{unknown} is not among the 40 words.")


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (3, 2)])
def test_small_ones(opened, tmp_path, size):
    num_words, num_topics = size
    small = embedding(num_words, (num_topics,), words=("a", "b", "c")[:num_words], history={}, record={})
    report.page(small, progress=False).save(tmp_path / "small.html")
    page = opened(tmp_path / "small.html")
    ask(page, "a")
    assert neighbors(page)[0] == [one.word for one in small.neighbors("a")]
    assert page.locator("#canvas circle").count() == num_topics
    assert page.locator("#curves").is_hidden()
    sizes = {(1, 1): "1 word, 1 topic", (2, 1): "2 words, 1 topic", (3, 2): "3 words, 2 topics"}
    assert page.locator("#size").text_content() == sizes[size]


def test_words_that_have_nothing_in_common(opened, tmp_path):
    apart = Embedding(("a", "b", "c"), jnp.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]))
    report.page(apart, progress=False).save(tmp_path / "apart.html")
    page = opened(tmp_path / "apart.html")
    ask(page, "a")
    assert neighbors(page) == (["b", "c"], [0.333, 0])
    page.get_by_role("button", name="Why c?").click()
    assert page.locator("#why-1").text_content() == "They have no topic in common."


def test_a_long_table_is_shown_by_and_by(opened, tmp_path):
    report.page(embedding(60, (30,)), progress=False).save(tmp_path / "long.html")
    page = opened(tmp_path / "long.html")
    assert page.locator("#topics tbody tr").count() == 20
    page.get_by_role("button", name="Show all 30 topics").click()
    assert page.locator("#topics tbody tr").count() == 30
    shown = page.locator("#topics tbody a").nth(20)
    assert page.locator(":focus").text_content() == shown.text_content()
