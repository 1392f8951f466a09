"""Filters that every page of the console shares."""

from django.template import engines


def rendered(source: str, **context: object) -> str:
    return engines["django"].from_string("{% load console %}" + source).render(context)


def test_several_texts_are_escaped_once_and_show_what_is_hidden() -> None:
    said = rendered("{{ texts|listed }}", texts=["Customer's <b>", "a\u202eb", ""])
    assert said == "Customer&#x27;s &lt;b&gt;, a⟨U+202E⟩b, "
