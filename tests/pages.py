"""What the tests of the page do with it, and read from it."""

import numpy as np
import pytest

MINUS = "\u2212"


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


BOXES = "all => all.map(one => one.getBoundingClientRect().toJSON())"


def overlapping(boxes):
    return [
        (one, other)
        for place, one in enumerate(boxes)
        for other in boxes[:place]
        if min(one["right"], other["right"]) > max(one["left"], other["left"])
        and min(one["bottom"], other["bottom"]) > max(one["top"], other["top"])
    ]
