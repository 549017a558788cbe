"""Measure the size of a page, and how fast it is made, opens and answers in a real Chromium.

`python experiments/report/run.py` (two minutes, on WikiText-2) writes results.json and the two pictures.
`--axe FILE` also lets axe-core's axe.min.js, from its npm package, look for what hinders people.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

import dcdjax
from dcdjax import report

HERE = Path(__file__).parent
DATA = os.environ.get("DCDJAX_DATA") or str(HERE.parent.parent.parent / "shared" / "data")
# The words of the corpora stand between blanks.
AS_IT_IS: Any = {"tokens": "blanks", "min_count": 1}
NUM_QUESTIONS = 200
# A phone of today is about so many times slower than a desk's computer.
SLOWER = 4
ASK = """async word => {
  question.value = word;
  const began = performance.now();
  search.requestSubmit();
  await new Promise(painted => requestAnimationFrame(() => setTimeout(painted)));
  return performance.now() - began;
}"""
# In the page's own time; that a test looks every few milliseconds only is within the noise.
STAGES = {"opened": "main:not([hidden])", "map settled": "svg[data-settled]"}


def opened(browser: Browser, path: Path, *, slower: int = 1, **options: Any) -> tuple[Page, dict[str, float]]:
    options = {"viewport": {"width": 1280, "height": 960}, **options}
    page = browser.new_context(offline=True, **options).new_page()
    if slower > 1:
        page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": slower})
    page.goto(path.as_uri(), wait_until="commit")
    times = {}
    for name, selector in STAGES.items():
        page.wait_for_selector(selector, timeout=120_000)
        times[f"{name}, s"] = round(page.evaluate("performance.now()") / 1000, 2)
    return page, times


def answering(page: Page, words: list[str]) -> dict[str, float]:
    """Return the milliseconds from a question to its picture. Up to 17 ms are the wait for a frame."""
    times = sorted(page.evaluate(ASK, word) for word in words)
    return {
        "median, ms": round(statistics.median(times), 1),
        "95 of 100 within, ms": round(times[int(0.95 * len(times))], 1),
        "slowest, ms": round(times[-1], 1),
    }


def measured(browser: Browser, name: str, model: dcdjax.Embedding, path: Path) -> dict[str, Any]:
    report.page(model, max_words=64, progress=False)  # what is compiled is compiled
    began = time.perf_counter()
    report.page(model, progress=False).save(path)
    result: dict[str, Any] = {
        "model": name,
        "words": len(model),
        "columns of W": model.W.shape[1],
        "topics": model.num_topics,
        "made, s": round(time.perf_counter() - began, 1),
        "MB": round(path.stat().st_size / 1e6, 2),
    }
    words = list(model.words[:: len(model) // NUM_QUESTIONS])
    for kind, slower in (("desk", 1), (f"{SLOWER} times slower", SLOWER)):
        page, times = opened(browser, path, slower=slower)
        result[kind] = {**times, **answering(page, words)}
        page.context.close()
    return result


def pictures(browser: Browser, path: Path, word: str) -> None:
    for name, width, height in (("page", 1280, 960), ("phone", 390, 844)):
        page, _ = opened(browser, path, viewport={"width": width, "height": height})
        page.evaluate(ASK, word)
        page.wait_for_timeout(300)
        page.screenshot(path=HERE / f"{name}.png")
        page.context.close()


def hindrances(browser: Browser, path: Path, axe: Path) -> list[str]:
    found = []
    for scheme in ("light", "dark"):
        for width in (1280, 390):
            options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
            page, _ = opened(browser, path, bypass_csp=True, **options)  # so that axe may run
            page.evaluate(axe.read_text())
            results = page.evaluate("axe.run()")
            found += [f"{one['id']} ({scheme}, {width} pixels)" for one in results["violations"]]
            page.context.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--axe", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    corpus = dcdjax.datasets.load("wikitext-2", folder=DATA)
    models = {
        "one start of 200 topics": dcdjax.fit(
            corpus, num_topics=200, restarts=1, drop=["<unk>"], **AS_IT_IS, key=0
        ),
        "fit's default": dcdjax.fit(corpus, drop=["<unk>"], **AS_IT_IS, key=0),
    }
    results: dict[str, Any] = {"pages": []}
    arguments = ["--no-sandbox", "--disable-gpu"]
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        results["chromium"] = browser.version
        path = Path(folder) / "page.html"
        for name, model in models.items():
            results["pages"].append(measured(browser, name, model, path))
            print(results["pages"][-1])
        pictures(browser, path, "river")  # of the last of them
        if chosen.axe:
            results["axe"] = hindrances(browser, path, chosen.axe)
            print(results["axe"])
        browser.close()
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
