"""The recommended number of topics: planted numbers, the parts of the score, and what is refused."""

import numpy as np
import pytest
import scipy.sparse

from dcdjax import choose_num_topics, count, fit, similarity
from dcdjax.fitting.num_topics import LEAST_PASSAGES, Candidate, NumTopics


def planted(num_groups, *, num_texts=600, words_per_group=25, length=20, seed=0):
    """Texts of one group of words each."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(num_groups, size=num_texts)
    return [[f"w{g}x{n}" for n in rng.integers(words_per_group, size=length)] for g in groups]


@pytest.fixture(scope="module")
def counts():
    return count(planted(4))


@pytest.fixture(scope="module")
def chosen(counts):
    return choose_num_topics(counts, candidates=[8, 2, 4, 9, 10, 11])


def test_a_planted_number_is_found(chosen):
    assert chosen.num_topics == 4
    by_number = {one.num_topics: one for one in chosen.curve}
    assert by_number[4].stability > 0.9 > by_number[8].stability
    assert by_number[4].likelihood > by_number[2].likelihood


def test_the_score_is_what_it_says(chosen, counts):
    assert max(one.gain for one in chosen.curve) == 1
    for one in chosen.curve:
        assert one.score == pytest.approx(one.gain * one.stability)
        assert 0 <= one.stability <= 1 + 1e-6
    # Four equal groups of 25 words: a word is a hundredth of the text, or a 25th of its group's.
    by_number = {one.num_topics: one for one in chosen.curve}
    assert by_number[4].likelihood == pytest.approx(np.log(1 / 25), abs=0.15)


@pytest.mark.slow
def test_it_is_the_same_every_time_and_by_each_route(chosen, counts):
    S = similarity.from_counts(counts, drop_isolated=True)
    again = choose_num_topics(S, candidates=[2, 4])
    # The vectors of fewer topics are computed with fewer dimensions, which changes the last digits.
    assert again.curve[1][:2] == pytest.approx(chosen.curve[1][:2], rel=1e-5)
    assert again.curve[1].stability == pytest.approx(chosen.curve[1].stability, rel=1e-4)


@pytest.mark.slow
def test_fit_takes_the_recommended_number():
    embedding = fit(count(planted(10)), num_topics="auto", restarts=1, progress=False)
    assert embedding.num_topics == embedding.record["settings"]["num_topics"] == 10
    assert [one["num_topics"] for one in embedding.record["num_topics_curve"]] == [10, 15, 20]


def test_it_shows_its_curve():
    shown = NumTopics(20, (Candidate(20, -7.2345, 1.0, 0.5, 0.5),))
    assert repr(shown).splitlines() == [
        "20 topics are recommended",
        "num_topics likelihood       gain  stability      score",
        "        20     -7.234       1.00       0.50       0.50",
    ]
    assert shown._repr_html_().startswith("<pre>20 topics")


def test_the_search_ends_three_numbers_after_the_best(chosen):
    assert [one.num_topics for one in chosen.curve] == [2, 4, 8, 9, 10]


@pytest.mark.usefixtures("unchecked_annotations")
@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (scipy.sparse.eye_array(9, format="csr"), {"num_topics": "auto"}, "S was not made from counts"),
        (["tea cup"] * (LEAST_PASSAGES - 1), {"num_topics": "auto"}, f"at least {LEAST_PASSAGES} passages"),
        ([f"word{n}" for n in range(50)], {"num_topics": "auto"}, "the text is too small"),
        (["tea cup"] * 50, {"num_topics": "many"}, "num_topics must be whole numbers or 'auto', got 'many'"),
    ],
)
def test_what_is_refused(source, options, message):
    with pytest.raises(ValueError, match=message):
        fit(source, progress=False, **options)


def test_candidates_are_checked(counts):
    with pytest.raises(ValueError, match="candidates must be some numbers, got none"):
        choose_num_topics(counts, candidates=[])
    with pytest.raises(ValueError, match="candidates must be at least 1, got 0"):
        choose_num_topics(counts, candidates=[0])
