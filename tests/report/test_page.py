"""The page as people use it: in a real Chromium, by mouse, keyboard and touch; offline, from the disk."""

import itertools
import json
import os
import re
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from embeddings import HOSTILE, embedding

from dcdjax import Embedding, report

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
    return embedding(120, (6, 9))


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
        own = model.topics_of(word, 8)
        shown = page.locator("#word-topics li")
        assert [int(text) for text in shown.locator("b").all_text_contents()] == [one.topic for one in own]
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
        assert [int(text) for text in lines.locator("b").all_text_contents()][: len(told)] == [
            one.topic for one in told
        ]
        for place, one in enumerate(told):
            assert re.match(rf"word7 → {one.topic} .* → {neighbor}", lines.nth(place).text_content())
            text = lines.nth(place).locator(".number").text_content()
            value, share = re.findall(r"^(\S+) \((\S+) %\)$", text)[0]
            assert float(value) == pytest.approx(one.probability, rel=0.06)  # two digits
            part = 100 * one.probability / total
            assert float(share) == pytest.approx(part, abs=0.51 + 0.0095 * part)
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
    return int(page.locator("#topic-heading").text_content().removeprefix("Topic "))


def assert_topic(page, model, number):
    assert shown_topic(page) == number
    topic = model.topics(20)[number]
    words = page.locator("#topic-words li")
    assert words.locator("a").all_text_contents() == [one.word for one in topic.words]
    values = [float(text) for text in words.locator(".number").all_text_contents()]
    assert values == pytest.approx([one.probability for one in topic.words], rel=6e-3)
    note = page.locator("#topic-note").text_content()
    assert f"coherence (NPMI) {model.topics(10)[number].coherence:.2f}" in note
    assert f"of start {1 if number < 6 else 2}, " in note


def test_a_topic_on_the_map_is_clicked(opened, model):
    page = opened()
    circles = page.locator("#canvas circle")
    assert circles.count() == 15
    for number in (3, 0):
        circles.nth(number).click()
        assert_topic(page, model, number)
        assert circles.nth(number).get_attribute("aria-selected") == "true"
        assert page.locator("#canvas circle.chosen").count() == 1
    word = page.locator("#topic-words a").nth(1)
    name = word.text_content()
    word.click()
    assert shown_word(page) == name
    assert shown_topic(page) == model.topics_of(name, 1)[0].topic
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
    assert circle.bounding_box() == box
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


def test_the_keyboard_does_not_lose_the_map(opened, model):
    page = opened()
    focused = "document.activeElement.getAttribute('data-topic')"
    ask(page, "word7")
    own = [one.topic for one in model.topics_of("word7", 8)]
    [*others] = (topic for topic in range(6) if topic not in own)  # shown only while start 1 is
    page.locator("#zoom-all").focus()
    page.keyboard.press("Tab")
    keys = itertools.cycle(("ArrowLeft", "ArrowUp", "ArrowUp", "ArrowRight", "ArrowDown"))
    while int(page.evaluate(focused)) not in others:
        page.keyboard.press(next(keys))
    page.get_by_label("Topics of", exact=True).select_option("start 2, 9 topics")
    page.locator("#zoom-all").focus()
    page.keyboard.press("Tab")
    assert page.evaluate(focused) is not None
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


def test_the_map_is_zoomed_and_shows_one_start_at_a_time(opened):
    page = opened()
    transform = "document.querySelector('#canvas svg > g').getAttribute('transform')"
    page.get_by_role("button", name="Zoom in").click()
    assert "scale(1.6)" in page.evaluate(transform)
    page.get_by_role("button", name="All", exact=True).click()
    assert "scale(1)" in page.evaluate(transform)
    assert page.locator("#topics tbody tr").count() == 6
    page.get_by_label("Topics of", exact=True).select_option("start 2, 9 topics")
    assert page.locator("#topics tbody tr").count() == 9
    assert page.locator("#topics-heading").text_content() == "All topics of start 2, 9 topics"
    page.get_by_label("Topics of", exact=True).select_option("all starts")
    assert page.locator("#topics tbody tr").count() == 15
    assert page.locator("#canvas circle:visible").count() == 15


def test_the_table_is_sorted(opened, model):
    page = opened()
    page.get_by_label("Topics of", exact=True).select_option("all starts")
    topics = model.topics(10)
    orders = {"NPMI": lambda one: -one.coherence, "weight": lambda one: -one.weight, "topic": lambda one: 0}
    for name, order in orders.items():
        page.locator("#topics").get_by_role("button", name=name).click()
        shown = page.locator("#topics tbody a").all_text_contents()
        assert [int(text) for text in shown] == [one.number for one in sorted(topics, key=order)]
        marked = page.locator("#topics th[aria-sort]:not([aria-sort=none])")
        assert marked.text_content() == name
    page.locator("#topics tbody a").nth(4).click()
    assert_topic(page, model, 4)


# --- What surrounds them ----------------------------------------------------------------------------


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
    assert_topic(opened(address="#topic=11"), model, 11)
    back = opened(address="#topic=11")
    begun = shown_word(back)
    ask(back, "word5")
    back.go_back()
    assert (shown_word(back), shown_topic(back)) == (begun, 11)
    kept = opened(address="#word=word5")
    kept.locator("#canvas circle").nth(3).click()
    kept.reload()
    assert kept.url.endswith("#topic=3")
    assert (shown_word(kept), shown_topic(kept)) == ("word5", 3)
    for wrong in ("#word=nobody", "#topic=15", "#topic=x", "#word=%E0%A4%A", "#"):
        page = opened(address=wrong)
        begun = shown_word(page)
        told = page.get_by_role("alert").text_content()
        assert told == ("nobody is not among the 120 words." if "nobody" in wrong else "")
        assert (
            begun
            == model.topics(10)[max(range(15), key=lambda k: model.topics(10)[k].coherence)].words[0].word
        )


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
    assert frame.locator("#topic-heading").text_content() == f"Topic {model.topics_of(second, 1)[0].topic}"
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
    assert page.locator("#size").text_content() == "the 40 most frequent of 120 words, 15 topics"
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
