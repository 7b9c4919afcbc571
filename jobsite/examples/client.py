"""The API as a runner sees it: requests that are answered, refused, or not answered at all."""

from __future__ import annotations

import email.utils
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from typing import IO, Any

MAX_ANSWER = 64 * 1024 * 1024


class Refused(Exception):
    """The server understood and says no; `code` is the stable word for why."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        self.status, self.code, self.detail = status, code, detail
        super().__init__(f"{status} {code}: {detail}")


class Away(Exception):
    """No answer, or one that says later. Whether the request was carried out is unknown: say the same again."""

    def __init__(self, why: str, after_s: float | None = None) -> None:
        self.after_s = after_s
        super().__init__(why)


class _Stay(urllib.request.HTTPRedirectHandler):
    """Never elsewhere: the key is for this server alone."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _is_address(url: str) -> bool:
    place = urllib.parse.urlsplit(url)
    try:
        known = place.port is None or place.port > 0
    except ValueError:
        return False
    return known and place.scheme in ("http", "https") and bool(place.hostname) and not (
        "@" in place.netloc or place.query)


class Client:
    """One server and one key. Safe to use from many threads."""

    def __init__(self, url: str, key: str, *, timeout_s: float = 15.0) -> None:
        """Raises ValueError for an address that is none, and for a key that no header can carry, without its words."""
        if not _is_address(url):
            raise ValueError("The address of the server begins with http:// or https://, and holds no password.")
        # What is wrong with a header is said by quoting it.
        if not key.isascii() or not key.isprintable() or " " in key:
            raise ValueError("The key must be printable ASCII without spaces.")
        self._url, self._key, self._timeout_s = url.rstrip("/") + "/api/v1", key, timeout_s
        self._opener = urllib.request.build_opener(_Stay())
        # How far the server's clock is ahead of ours; its moments are read by it.
        self.ahead_s = 0.0

    def post(self, path: str, body: dict[str, Any], *, patience_s: float = 0.0) -> dict[str, Any]:
        """The answer. Waits `patience_s` longer than for others. Raises Refused and Away."""
        asked = urllib.request.Request(self._url + path, json.dumps(body).encode(), method="POST", headers={  # noqa: S310
            "Authorization": f"Bearer {self._key}", "Content-Type": "application/json"})
        try:
            with self._opener.open(asked, timeout=self._timeout_s + patience_s) as answer:
                self._compare(answer.headers.get("Date"))
                return _object(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Away(f"{type(error).__name__}: {error}") from None

    def _compare(self, date: str | None) -> None:
        # An answer counts whatever a proxy says of the time.
        with suppress(ValueError, TypeError, OverflowError):
            self.ahead_s = email.utils.parsedate_to_datetime(date or "").timestamp() - time.time()


def _object(answer: IO[bytes]) -> dict[str, Any]:
    found = json.loads(answer.read(MAX_ANSWER))
    if not isinstance(found, dict):
        raise ValueError("the answer is no object")
    return found


def _refusal(error: urllib.error.HTTPError) -> Exception:
    try:
        told = _object(error)
    except (OSError, http.client.HTTPException, ValueError):
        told = {}
    if error.code >= 500 or error.code == 408:
        after = error.headers.get("Retry-After", "")
        return Away(f"{error.code} {told.get('code', '')}", float(after) if after.isdigit() else None)
    return Refused(error.code, str(told.get("code", "refused")), str(told.get("detail", ""))[:500])
