"""Store URLs: their scheme, and how to show one or hand it on without its password."""

from __future__ import annotations

import re
from urllib.parse import unquote

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_USER = re.compile(r"(?P<head>[A-Za-z][A-Za-z0-9+.-]*://[^:/?#@\s]*):(?P<password>[^/?#\s]*)@")
# A password that was not percent-encoded may hold the very characters that end an authority;
# a message had better lose part of a host than show part of a password. A port with an @ in the
# query behind it is no such password.
_PORT = r"\d*(?:[/,][^@?]*)?\?[^@]*="
_SLOPPY = re.compile(
    rf"([A-Za-z][A-Za-z0-9+.-]*://[^:/?#@\[\s]*):(?!{_PORT}).*@",
    re.DOTALL,
)
_QUERY = re.compile(r"(?i)([?&;][^=&;\s]*(?:pass|pwd|secret|token|credential)[^=&;\s]*=)[^&;#\s]*")


def scheme(url: str) -> str:
    """The scheme of a URL in lower case. Raises ValueError where it has none."""
    found = _SCHEME.match(url)
    if found is None:
        raise ValueError("the URL has no scheme (it looks like postgresql://host/database)")
    return found[1].lower()


def mask(url: str) -> str:
    """The URL with its password, and what its query calls a secret, as ``***``."""
    shown = _USER.sub(r"\g<head>:***@", url)
    if shown == url:
        shown = _SLOPPY.sub(r"\1:***@", url)
    return _QUERY.sub(r"\1***", shown)


def without_password(url: str) -> tuple[str, str | None]:
    """The URL without its password, and the password as it is written there (percent-encoded).

    Raises ValueError where its end can't be told.
    """
    found = _USER.match(url)
    if found is None:
        if _SLOPPY.match(url):
            raise ValueError("the password in the URL holds a character to be percent-encoded")
        return url, None
    return f"{found['head']}@{url[found.end() :]}", found["password"]


def decoded(text: str) -> str:
    """A part of a URL without its percent-encoding."""
    return unquote(text)
