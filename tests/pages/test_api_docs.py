"""The API's page in a browser: complete, without a script, under the site's policy, on a phone too."""

from __future__ import annotations

import os

import pytest

from jobs.api import openapi


@pytest.mark.parametrize("look", [
    {"viewport": {"width": 1280, "height": 900}},
    {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    {"viewport": {"width": 390, "height": 844}, "is_mobile": True}], ids=["light", "dark", "phone"])
def test_the_page_shows_every_operation_and_breaks_no_policy(served, chromium, database, look):
    """Nothing from elsewhere, nothing inline, nothing wider than the screen; no login and no key."""
    context = chromium.new_context(java_script_enabled=False, **look)
    page = context.new_page()
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    answer = page.goto(f"http://127.0.0.1:{served}/api/docs")
    assert answer.status == 200
    assert answer.headers["cache-control"] == "public, max-age=300"
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    document = openapi.document("/api")
    operations = [operation["operationId"] for item in document["paths"].values() for operation in item.values()]
    assert page.locator("article[id]").count() == len(operations) + len(document["components"]["schemas"])
    for name in operations:
        assert page.locator(f'article[id="{name}"]').count() == 1
    if folder := os.environ.get("SCREENSHOTS"):
        for at, name in enumerate(("top", "post_jobs", "form-Job")):
            if at:
                page.goto(f"http://127.0.0.1:{served}/api/docs#{name}")
            page.screenshot(path=f"{folder}/docs-{look.get('color_scheme', '')}{look['viewport']['width']}-{name}.png")
    assert said == []
    assert all(url.startswith(f"http://127.0.0.1:{served}/") for url in asked)
    with_scripts = chromium.new_context(**look).new_page()
    with_scripts.goto(f"http://127.0.0.1:{served}/api/docs")
    assert with_scripts.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert with_scripts.evaluate("getComputedStyle(document.querySelector('.card')).borderRadius") == "8px"
    with_scripts.context.close()
    context.close()
