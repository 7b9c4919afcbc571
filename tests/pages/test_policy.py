"""What the content security policy lets through in a real browser: everything that the pages need (issue 4)."""

from __future__ import annotations

PAGES = ["/", "/jobs/", "/dead-letters/", "/timers/", "/workers/", "/nothing"]
ADMIN = ["/admin/", "/admin/auth/user/", "/admin/auth/user/add/", "/admin/auth/group/add/", "/admin/password_change/"]


def test_no_page_violates_the_policy_and_every_file_arrives(console, operator):
    """Console and admin, with its date and filter widgets; the fixture fails the test for a violation."""
    refused = []
    console.page.on("response", lambda answer: refused.append((answer.url, answer.status))
                    if answer.status >= 400 and not answer.url.endswith("/nothing") else None)
    console.page.on("requestfailed", lambda asked: refused.append((asked.url, asked.failure)))
    for path in [*PAGES, *ADMIN, f"/admin/auth/user/{operator.pk}/change/"]:
        page = console.open(path)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("[...document.styleSheets].every(sheet => sheet.cssRules.length > 0)"), path
    # The scripts of the admin did their work: shortcuts beside a date, and the filter of a choice of many.
    assert page.locator(".datetimeshortcuts").count() >= 2
    assert page.locator(".selector-available").count() == 2
    page.locator(".datetimeshortcuts a").first.click()
    assert page.locator("#id_last_login_0").input_value() != ""
    assert refused == []


def test_what_is_inline_is_stopped(served, chromium, operator):
    """The policy works: a script that got into a page does not run, and the browser says so."""
    opened = chromium.new_context()
    page = opened.new_page()
    said = []
    page.on("console", lambda line: said.append(line.text))
    page.goto(f"http://127.0.0.1:{served}/login/")
    page.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "document.title = 'taken'";
        document.body.append(script);
    }""")
    assert page.title() != "taken"
    assert [line for line in said if "Content Security Policy" in line]
    opened.close()
