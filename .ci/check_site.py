"""Check the built pages: python .ci/check_site.py doc/_build/html.

They have to work without a network, show no LaTeX in place of a formula, link to pages
that exist, and be found by the words that people look for.
"""

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What is looked for, as the index of the search has it: stems of words.
SOUGHT = ("miss", "valu", "unit", "progress", "forecast", "cite", "xarray")
HIDDEN = {"script", "style", "pre", "code", "math", "annotation"}


class Page(HTMLParser):
    """What a page loads, what it links to, and its running text."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.links, self.text, self.hidden = [], [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        """Collect addresses; text within some elements is not read."""
        attributes = dict(attributes)
        self.hidden += tag in HIDDEN
        if tag in {"script", "img", "iframe", "source"} and attributes.get("src"):
            self.loads.append(attributes["src"])
        if tag == "link" and attributes.get("rel") == "stylesheet":
            self.loads.append(attributes["href"])
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])

    def handle_endtag(self, tag):
        """Leave an element that is not read."""
        self.hidden -= tag in HIDDEN

    def handle_data(self, data):
        """Collect what is read."""
        if not self.hidden:
            self.text.append(data)


def faults(path, root):
    """Yield a sentence for each fault of a page."""
    page = Page(path.read_text(encoding="utf-8"))
    for address in (*page.loads, *page.links):
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            if address in page.loads and parts.scheme != "data":
                yield f"loads {address} from the network"
        elif parts.path and not (path.parent / unquote(parts.path)).exists():
            yield f"links to {address}, which is not there"
    for latex in re.findall(r"\\[a-zA-Z]{2,}|\$[^$\n]{1,40}\$", "".join(page.text)):
        yield f"shows {latex} as text"


def main():
    """Print the faults; the exit status is 1 if there are any."""
    root = Path(sys.argv[1])
    pages = [p for p in sorted(root.rglob("*.html")) if "_static" not in p.parts]
    found = [f"{p.relative_to(root)} {text}" for p in pages for text in faults(p, root)]
    index = (root / "searchindex.js").read_text(encoding="utf-8")
    terms = json.loads(index[index.index("{") : index.rindex("}") + 1])
    known = {*terms["terms"], *terms["titleterms"]}
    found += [
        f"the search does not find {word}" for word in SOUGHT if word not in known
    ]
    print("\n".join([*found, f"{len(pages)} pages, {len(found)} faults"]))
    return bool(found) or not pages


if __name__ == "__main__":
    sys.exit(main())
