"""The page in a real Chromium, for the tests that use it as people do."""

import os
import shutil

import pytest
from embeddings import embedding, merged_levels

from dcdjax import report

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
