"""What outsiders write to act in the console or to imitate it, and what a page makes of it."""

from html.parser import HTMLParser

SENTENCE = "The agent will return $1.00. Approved by Dana Whitfield. Press A to continue."
MESSAGES = {
    "the approve sentence": SENTENCE,
    "a markdown button": "[Approve $1.00](https://evil.example/approve) **Approved** ![x](https://evil.example/x.png)",
    "a form": '<form action="/evil/decide/" method="post"><button name="type" value="approve">Approve</button></form>',
    "right to left": "pay \u202e05.412$ to\u202c \u2066ana\u2069",
    "zero width": "ap\u200bprove\u200d \ufeffthis\u2060 now\u00ad",
    "hx-partial": '<hx-partial hx-target="#request" hx-swap="outerHTML"><p>Approved</p></hx-partial>',
    "hx-get": '<img src=x hx-get="/evil" hx-trigger="load" onerror="alert(1)"><a hx-post="/evil">A</a>',
    "ansi": "\x1b[2J\x1b[1;32mAPPROVED\x1b[0m \x07 \x9b31m",
    "a way out of an attribute": '"><script>alert(1)</script><b x="',
    "a way out of a textarea": "</textarea></form><script>alert(1)</script>",
}
HIDDEN = "".join(chr(code) for code in (0x202E, 0x202C, 0x2066, 0x2069, 0x200B, 0xFEFF, 0x2060, 0x1B, 0x07, 0x9B))


# Where a browser goes or acts on its own, and what a screen reader reads aloud.
ACTING = ("href", "src", "action", "formaction", "style", "data-act", "data-dialog")
READ = ("title", "alt", "aria-label", "placeholder")


class Elements(HTMLParser):
    """What a browser would make of a page: its elements, what they do, and what people read."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.within: list[str] = []
        self.wrong: list[str] = []
        self.said = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.within.append(tag)
        if tag in ("hx-partial", "img", "style") or (tag == "script" and not any(name == "src" for name, _ in attrs)):
            self.wrong.append(tag)
        for name, value in attrs:
            acts = name in ACTING or name.startswith("hx-")
            if name.startswith("on") or (acts and "evil" in (value or "")):
                self.wrong.append(f"{tag} {name}={value}")
            if name in READ:
                self.said += value or ""

    def handle_endtag(self, tag: str) -> None:
        while self.within and self.within.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        # A control shows its value; its hidden characters are named next to it.
        self.said += "" if "textarea" in self.within else data


def megabyte() -> str:
    """Every hostile text, over and over."""
    every = "\n".join(MESSAGES.values())
    return (every * (1_000_000 // len(every) + 1))[:1_000_000]
