"""Pages of HTML as tests look at them, and a name that wants to act on them."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

EVIL = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "'\"><svg onload=document.title='owned'>\x1b[2J\u202e&lt;</title></style></svg></script>"
    '<!--{"a":1}${alert(1)}`]]>'
)


class Page(HTMLParser):
    """The elements of a page, and its figures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._in_figures = False
        self._figures = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        self._in_figures = (tag, dict(attributes).get("id")) == ("script", "figures")

    def handle_data(self, data: str) -> None:
        if self._in_figures:
            self._figures += data
        else:
            self.texts.append(data)

    def of(self, tag: str, kind: str | None = None) -> list[dict[str, str | None]]:
        """The attributes of the elements of a tag, all or those of a class."""
        found = [attributes for name, attributes in self.elements if name == tag]
        return [one for one in found if kind is None or one.get("class") == kind]

    @property
    def plots(self) -> list[str]:
        return [str(one["id"]).removeprefix("plot-") for one in self.of("svg") if "id" in one]

    @property
    def figures(self) -> dict[str, Any]:
        return json.loads(self._figures, parse_constant=lambda text: f"not JSON: {text}")
