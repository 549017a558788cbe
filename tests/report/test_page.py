"""The page as people use it: in a real Chromium, by mouse, keyboard and touch; offline, from the disk."""

import json
import re

import jax.numpy as jnp
import numpy as np
import pytest
from embeddings import HOSTILE, embedding
from pages import (
    BOXES,
    ask,
    assert_answers,
    assert_topic,
    neighbors,
    overlapping,
    question,
    shown_topic,
    shown_word,
)

from dcdjax import Embedding, report

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
        # In one go: the chart is drawn anew when it comes into sight.
        ask_boxes = f"place => ({BOXES})([...document.querySelectorAll(place)])"
        boxes, [chart] = page.evaluate(ask_boxes, "#chart text"), page.evaluate(ask_boxes, "#chart")
        assert len(boxes) > 6
        assert overlapping(boxes) == []
        assert chart["left"] <= min(box["left"] for box in boxes)


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
    assert re.search(r"diversity of the topics(0\.\d\d|1\.00)", facts)
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
