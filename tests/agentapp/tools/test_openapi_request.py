"""Arguments are written where and how the document says, and none leaves its place."""

import json
from typing import Any
from urllib.parse import parse_qsl, unquote

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentapp.tools.openapi_request import Outgoing, made
from agentapp.tools.results import InvalidArguments

BASE = "https://shop.example/v2"


def request(places: dict[str, Any], arguments: dict[str, Any], path: str = "/a", method: str = "get") -> Outgoing:
    return made({"method": method, "server": BASE, "path": path, "places": places}, arguments)


def place(where: str, style: str, explode: bool, name: str = "color", **more: Any) -> dict[str, Any]:
    return {"where": where, "name": name, "style": style, "explode": explode, **more}


def path_of(value: Any, style: str = "simple", explode: bool = False) -> str:
    found = request({"color": place("path", style, explode)}, {"color": value}, "/x/{color}/y")
    return found.full_url.removeprefix(f"{BASE}/x/").removesuffix("/y")


def query_of(value: Any, style: str = "form", explode: bool = True, **more: Any) -> str:
    found = request({"color": place("query", style, explode, **more)}, {"color": value})
    return found.full_url.partition("?")[2]


LIST, OBJECT = ["blue", "black", "brown"], {"R": 100, "G": 200}


# --- Styles, as the standard's own table has them ----------------------------------------------


@pytest.mark.parametrize(
    ("style", "explode", "one", "several", "named"),
    [
        ("simple", False, "blue", "blue,black,brown", "R,100,G,200"),
        ("simple", True, "blue", "blue,black,brown", "R=100,G=200"),
        ("label", False, ".blue", ".blue,black,brown", ".R,100,G,200"),
        ("label", True, ".blue", ".blue.black.brown", ".R=100.G=200"),
        ("matrix", False, ";color=blue", ";color=blue,black,brown", ";color=R,100,G,200"),
        ("matrix", True, ";color=blue", ";color=blue;color=black;color=brown", ";R=100;G=200"),
    ],
)
def test_a_path_is_written_in_its_style(style: str, explode: bool, one: str, several: str, named: str) -> None:
    assert [path_of(value, style, explode) for value in ("blue", LIST, OBJECT)] == [one, several, named]


@pytest.mark.parametrize(
    ("style", "explode", "one", "several", "named"),
    [
        ("form", True, "color=blue", "color=blue&color=black&color=brown", "R=100&G=200"),
        ("form", False, "color=blue", "color=blue,black,brown", "color=R,100,G,200"),
        ("spaceDelimited", False, "color=blue", "color=blue%20black%20brown", "color=R%20100%20G%20200"),
        ("pipeDelimited", False, "color=blue", "color=blue%7Cblack%7Cbrown", "color=R%7C100%7CG%7C200"),
        ("spaceDelimited", True, "color=blue", "color=blue&color=black&color=brown", "R=100&G=200"),
        ("deepObject", True, "color=blue", "color%5B0%5D=blue&color%5B1%5D=black&color%5B2%5D=brown",
         "color%5BR%5D=100&color%5BG%5D=200"),
    ],
)  # fmt: skip
def test_a_query_is_written_in_its_style(style: str, explode: bool, one: str, several: str, named: str) -> None:
    assert [query_of(value, style, explode) for value in ("blue", LIST, OBJECT)] == [one, several, named]


def test_objects_in_deep_objects_keep_their_way_down() -> None:
    written = query_of({"price": {"gte": 5, "of": ["a", "b"]}, "none": None}, "deepObject")
    assert [(unquote(name), value) for name, value in parse_qsl(written)] == [
        ("color[price][gte]", "5"), ("color[price][of][0]", "a"), ("color[price][of][1]", "b"),
    ]  # fmt: skip


def test_a_header_is_one_line_and_keeps_its_letters() -> None:
    headers = {"a": place("header", "simple", False, "X-A"), "b": place("header", "simple", True, "X-B")}
    assert request(headers, {"a": LIST, "b": OBJECT}).headers == {"X-A": "blue,black,brown", "X-B": "R=100,G=200"}
    assert request(headers, {"a": "a b/c%", "b": None}).headers == {"X-A": "a b/c%"}
    for bad in ("a\r\nHost: evil", "a\nb", "ü", "a\x00"):
        with pytest.raises(InvalidArguments, match="X-A is a header"):
            request(headers, {"a": bad})


def test_cookies_are_pairs_of_their_own() -> None:
    cookies = {"a": place("cookie", "form", True, "a"), "b": place("cookie", "form", False, "b")}
    found = request(cookies, {"a": "x; admin=1", "b": LIST})
    assert found.cookies == [("a", "x%3B%20admin%3D1"), ("b", "blue,black,brown")]


@pytest.mark.parametrize(("value", "written"), [(True, "true"), (None, ""), (1.5, "1.5"), ([], ""), ({}, ""), (0, "0")])
def test_values_are_written_as_json_has_them_and_nothing_where_there_is_none(value: Any, written: str) -> None:
    assert query_of(value).removeprefix("color=") == written


def test_a_parameter_that_is_json_is_sent_as_json() -> None:
    written = query_of({"a": ["ü", None]}, media="application/json")
    assert json.loads(dict(parse_qsl(written))["color"]) == {"a": ["ü", None]}


# --- Values stay in their place ----------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "", "..", ".", "../admin", "a/../b", "a/..", "..\\admin", "%2e%2e", "%2E%2e/x", "..%2fadmin", "%252e%252e",
        "..;x", " .. ", "..%00", "x/%2e%2e/y", [], {}, [""], ["a", ""], None, "%25252525252e",
    ],
)  # fmt: skip
@pytest.mark.parametrize("style", ["simple", "matrix"])
def test_a_value_that_would_leave_its_segment_is_refused(value: Any, style: str) -> None:
    with pytest.raises(InvalidArguments):
        path_of(value, style)


@pytest.mark.parametrize("value", [".", "..", ""])
def test_a_label_makes_no_way_up(value: str) -> None:
    with pytest.raises(InvalidArguments):
        path_of(value, "label")


def test_two_values_together_make_no_way_up() -> None:
    places = {name: place("path", "simple", False, name) for name in ("a", "b")}
    assert request(places, {"a": "main", "b": "next"}, "/compare/{a}...{b}").url == f"{BASE}/compare/main...next"
    with pytest.raises(InvalidArguments, match="lead away"):
        request({**places}, {"a": ".x", "b": "y"}, "/.{b}.{a}/..")


@pytest.mark.parametrize(
    "value", ["a/b", "a?b=c", "a#b", "a%2fb", "a b", "ü", "a;b", "a&b=c", "a\\b", "...", "a..b", "@evil"]
)
def test_whatever_else_is_in_a_segment_is_encoded(value: str) -> None:
    written = path_of(value)
    assert unquote(written) == value
    assert not set(written) & set("/?#\\ ;&@")


@settings(deadline=None)
@given(st.text(min_size=1))
def test_a_path_goes_where_the_template_says_or_nowhere(value: str) -> None:
    try:
        found = request({"color": place("path", "simple", False)}, {"color": value}, "/x/{color}/y")
    except (InvalidArguments, UnicodeEncodeError):
        return
    raw = httpx2.URL(found.full_url).raw_path.decode()
    assert raw.startswith("/v2/x/")
    assert raw.endswith("/y")
    assert raw.count("/") == 4
    assert "?" not in raw


@settings(deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), min_size=1), st.text(max_size=5))
def test_a_query_says_what_was_given_and_nothing_else(value: dict[str, str], other: str) -> None:
    places = {"color": place("query", "deepObject", True), "n": place("query", "form", True, "n")}
    try:
        found = request(places, {"color": value, "n": other})
    except UnicodeEncodeError:
        return
    raw = httpx2.URL(found.full_url).query.decode()
    expected = [*((f"color[{key}]", text) for key, text in value.items()), ("n", other)]
    assert parse_qsl(raw, keep_blank_values=True) == expected


def test_a_key_of_an_object_takes_the_place_of_no_other_parameter() -> None:
    places = {"f": place("query", "form", True, "f"), "page": place("query", "form", True, "page")}
    with pytest.raises(InvalidArguments, match="'page'"):
        request(places, {"f": {"page": "1"}})
    assert request(places, {"f": {"size": "1"}}).full_url == f"{BASE}/a?size=1"


def test_a_path_that_has_a_query_keeps_it() -> None:
    found = request({"n": place("query", "form", True, "n")}, {"n": 1}, "/a?action=list&x#part")
    assert found.full_url == f"{BASE}/a?action=list&x=&n=1"


def test_a_part_of_the_path_that_is_not_given_is_missed() -> None:
    with pytest.raises(InvalidArguments, match="id is missing"):
        request({}, {}, "/a/{id}")


# --- Bodies ------------------------------------------------------------------------------------


def body(media: str, value: Any, **parts: Any) -> Outgoing:
    return request(
        {"body": {"where": "body", "name": "body", "media": media, "parts": parts}}, {"body": value}, method="post"
    )


def test_json_is_sent_as_it_was_approved() -> None:
    found = body("application/vnd.shop+json", {"a": None, "ü": [1.5, True]})
    assert found.headers == {"Content-Type": "application/vnd.shop+json"}
    assert found.content is not None
    assert json.loads(found.content) == {"a": None, "ü": [1.5, True]}


def test_a_form_is_written_field_by_field() -> None:
    found = body(
        "application/x-www-form-urlencoded",
        {"a": "x&y=1", "list": [1, 2], "deep": {"k": "v"}, "plain": {"k": 1}, "none": None},
        deep={"style": "deepObject", "explode": True},
    )
    assert found.content is not None
    assert parse_qsl(found.content.decode()) == [
        ("a", "x&y=1"), ("list", "1"), ("list", "2"), ("deep[k]", "v"), ("plain", '{"k":1}'),
    ]  # fmt: skip


def test_a_multipart_body_has_a_part_for_each_field() -> None:
    found = body(
        "multipart/form-data", {"note": "ü", "meta": {"a": 1}, "file": "text", "n": [1, 2]}, file={"file": True}
    )
    assert found.parts == [
        ("note", (None, "ü".encode(), "text/plain; charset=utf-8")),
        ("meta", (None, b'{"a":1}', "application/json")),
        ("file", ("file", b"text", "application/octet-stream")),
        ("n", (None, b"1", "text/plain; charset=utf-8")),
        ("n", (None, b"2", "text/plain; charset=utf-8")),
    ]


def test_a_text_is_sent_as_it_is() -> None:
    found = body("text/plain", "héllo")
    assert (found.content, found.headers["Content-Type"]) == ("héllo".encode(), "text/plain; charset=utf-8")


@pytest.mark.parametrize("media", ["application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_of_anything_but_fields_is_refused(media: str) -> None:
    with pytest.raises(InvalidArguments, match="form"):
        body(media, ["a"])
