"""What makes two failures alike: an error's text without what differs from job to job (DESIGN 7.3).

Plain Python. The text is for people and for grouping, and is kept with the dead letter; the message itself stays with
its attempt.
"""

from __future__ import annotations

import re
from typing import Final

LIMIT: Final = 200
# What stands further on says which line of a traceback it was, and costs time in a batch of failures.
READ: Final = 1_000

# Possessive, and never begun in the middle of a word: the time is linear whatever the text is.
_DIFFERS: Final = re.compile(r"""
      (?P<url>    (?<!\w) [A-Za-z][A-Za-z0-9+.-]{1,15}+ :// [^\s'"`<>]++ )
    | (?P<uuid>   (?<![0-9A-Za-z]) [0-9a-fA-F]{8} (?:-?[0-9a-fA-F]{4}){3} -?[0-9a-fA-F]{12} (?![0-9A-Za-z]) )
    | (?P<email>  (?<![\w.+-]) [\w.+-]++ @ [\w-]++ (?:\.[\w-]++)++ )
    | (?P<time>   (?<![\w-]) \d{4}-\d\d-\d\d (?:[T\ ]\d\d:\d\d (?::\d\d (?:[.,]\d++)?)? (?:Z|[+-]\d\d:?\d\d)?)? (?!\w) )
    | (?P<ip>     (?<![\w.]) \d{1,3} (?:\.\d{1,3}){3} (?::\d{1,5})? (?![\w.]) )
    | (?P<str>    (?<!\w) (?: '[^'\n]{0,300}' | "[^"\n]{0,300}" | `[^`\n]{0,300}` ) (?!\w) )
    | (?P<path>   (?<![\w/\\.~<]) (?: [A-Za-z]:[\\/] | ~?/ | \.{1,2}/ ) [^\s'"`<>,;:()\[\]{}]++ )
    | (?P<hex>    (?<!\w) (?: 0x[0-9a-fA-F]++ | (?=[a-fA-F]*+[0-9]) [0-9a-fA-F]{8,}+ ) (?!\w) )
    | (?P<token>  (?<![\w+/=-]) (?=[A-Za-z_+/=-]*+[0-9]) [\w+/=-]{32,}+ )
    | (?P<n>      [-+]? (?<!\d) \d++ (?:[.,:_]\d++)*+ (?:[eE][-+]?\d++)? )
""", re.VERBOSE)

# The last frame of a traceback, the exception behind it, and its message.
_FRAME: Final = '\n  File "'
_TRACEBACK: Final = "Traceback (most recent call last):\n"
_FUNCTION: Final = re.compile(r"[^\n]{0,400}?, line \d+, in ([^\n]{1,80})")


def normal(message: str | None) -> str:
    """One printable line of at most 200 characters in which `<n>`, `<uuid>`, `<path>`, ... stand for what differs.

    The same for equal messages always; empty for none. Of a traceback it is the exception and where it was raised.
    """
    if not message:
        return ""
    line = " ".join("".join(c if c.isprintable() else " " for c in _raised(message)[:READ]).split())
    return " ".join(_DIFFERS.sub(lambda found: f"<{found.lastgroup}>", line)[:LIMIT].split())


def _raised(message: str) -> str:
    at = message.rfind(_FRAME) if _TRACEBACK in message[:READ] else -1
    if at < 0:
        return message
    frame, _, rest = message[at + len(_FRAME):].partition("\n")
    where = _FUNCTION.match(frame)
    lines = rest.split("\n")
    # The source line and its marks are indented, the exception is not.
    raised = next((n for n, line in enumerate(lines) if line[:1].strip()), None)
    if raised is None:
        return message
    function = f"in {where[1]}: " if where else ""
    return function + "\n".join(lines[raised:])
