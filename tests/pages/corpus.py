"""Twenty-five strings that would run, break out or mislead where a page does not escape them (RELIABILITY 6)."""

from __future__ import annotations

XSS: list[str] = [
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    "\"><svg onload=alert(4)>",
    "'><svg/onload=alert(5)>",
    "javascript:alert(6)",
    "<a href=\"javascript:alert(7)\">x</a>",
    "<iframe srcdoc=\"<script>alert(8)</script>\"></iframe>",
    "\" onmouseover=\"alert(9)\" x=\"",
    "' autofocus onfocus='alert(10)",
    "</pre><script>alert(11)</script>",
    "</textarea><script>alert(12)</script>",
    "</title><script>alert(13)</script>",
    "<!--><script>alert(14)</script>-->",
    "{{ 7|add:7 }}{% now 'Y' %}",
    "${alert(16)}`${alert(16)}`",
    "&lt;script&gt;alert(17)&lt;/script&gt;",
    "&#60;img src=x onerror=alert(18)&#62;",
    "<style>body{display:none}</style>",
    "<meta http-equiv=refresh content=\"0;url=/logout/\">",
    "<base href=\"//example.invalid/\">",
    "<form action=//example.invalid><button>press",
    "<details open ontoggle=alert(23)>",
    "]]><script>alert(24)</script>",
    "<math><mtext></mtext><mglyph><svg><mtext><style><a title=\"</style><img src onerror=alert(25)>\">",
]
assert len(XSS) == 25
