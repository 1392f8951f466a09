"""Known values are found in free text in every spelling, and nothing else is."""

import json
import tracemalloc
from html import escape
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.blots import blotting
from approvals.detectors import MASK

VALUES = [
    'Mara "Quo" Vance', "Line\nBreak 7", "Tab\tCity", "M\u00fcller \u00dcberstra\u00dfe", "Back\\Slash", "Mixed Case",
    "Dr <b>Doc</b>", "two  spaces", "It's & <x>", "Zw\u00f6lf \U0001f600 x",
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_found_in_each_spelling(value: str) -> None:
    spellings = [
        value, value.upper(), value.lower(), " ".join(value.split()), quote(value), escape(value),
        json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], json.dumps(json.dumps(value))[3:-3],
        escape(json.dumps(value)[1:-1]),
    ]  # fmt: skip
    for spelled in spellings:
        text = f"before {spelled} behind"
        assert blotting(VALUES, text)(text) == f"before {MASK} behind", spelled


def test_an_address_with_a_plus_for_a_space_names_it_too() -> None:
    text = f"?q={quote_plus('Mixed Case')}&x=1"
    assert blotting(["Mixed Case"], text)(text) == f"?q={MASK}&x=1"


def test_of_two_values_that_begin_alike_the_longer_is_taken_out_whole() -> None:
    text = "swordfish, sword, words"
    assert blotting(["sword", "swordfish"], text)(text) == f"{MASK}, {MASK}, words"


def test_a_letter_that_grows_when_it_is_made_small_moves_nothing() -> None:
    text = "\u0130\u0130\u0130 Ana Bell here"
    assert blotting(["ana bell"], text)(text) == f"\u0130\u0130\u0130 {MASK} here"


def test_short_values_and_masks_themselves_leave_the_words_alone() -> None:
    text = f"I am in {MASK}."
    assert blotting(["a", "", "in", MASK], text)(text) == text


KEY = "0198ab10-10ef-7aaa-8bbb-1010cafe1010"
DIGEST = f"{'1010cafe' * 7}4711cafe"
MOMENT = "2026-11-29T11:59:35.471123+00:00"


def spared(values: list[str], text: str) -> str:
    return blotting(values, text, spares_made_here=True)(text)


@pytest.mark.parametrize(
    "made", [KEY, KEY.upper(), DIGEST, DIGEST[:32], MOMENT, quote(MOMENT), f"{MOMENT[:-6]}Z", MOMENT[:16]]
)
def test_short_values_leave_what_is_made_here_whole(made: str) -> None:
    written = (
        made,
        f"/runs/{made}/",
        f'"id":"{made}"',
        f"?next=%2Fruns%2F{made}%2F",
        f"a\\n{made}",
        f"{made}~2~{made}",
    )
    for text in written:
        assert spared(["1010", "Cafe", "10ef", "4711", "2026", "11:59"], text) == text
        assert spared(["1010"], f"1010 Vienna, {text}, 1010") == f"{MASK} Vienna, {text}, {MASK}"


def test_short_values_leave_the_names_of_files_whole() -> None:
    text = '<link href="/static/console/console.3f2a9c4711de.css"> 3f2a9c4711de'
    assert spared(["4711"], text) == text.replace(" 3f2a9c4711de", f" 3f2a9c{MASK}de")


@pytest.mark.parametrize("made", [KEY, DIGEST, MOMENT])
def test_a_secret_is_taken_out_of_them_too(made: str) -> None:
    for value in ("1010", "4711", "2026"):
        assert blotting([value], made)(made) == made.replace(value, MASK)


def test_what_is_more_than_chance_is_taken_out_of_a_key_and_what_is_no_key_has_no_shelter() -> None:
    for value, text, shown in (
        (KEY, f"/runs/{KEY}/", f"/runs/{MASK}/"),
        ("0198ab10", f"/runs/{KEY}/", f"/runs/{MASK}{KEY[8:]}/"),
        ("2026-11-29", MOMENT, f"{MASK}{MOMENT[10:]}"),
        ("1010 ms", f"{KEY} ms", f"{KEY[:-4]}{MASK}"),
        ("1010", f"x{DIGEST}", f"x{DIGEST}".replace("1010", MASK)),
        ("4711", f"{4711:032}", f"{0:028}{MASK}"),
        ("4711", f"cafe{4711:028}", f"cafe{0:024}{MASK}"),
        ("4711", "00000000-0000-0000-0000-000000004711", f"00000000-0000-0000-0000-00000000{MASK}"),
        ("471199", "00000000-0000-4000-8000-000000471199", f"00000000-0000-4000-8000-000000{MASK}"),
        ("1010", f"{DIGEST}0{DIGEST}", f"{DIGEST}0{DIGEST}".replace("1010", MASK)),
        ("2026", "on 2026-11-29", f"on {MASK}-11-29"),
    ):
        assert spared([value], text) == shown
    text = f"{KEY} ms"
    assert spared(["1010", "1010 ms", "010 m"], text) == f"{KEY[:-4]}{MASK}"
    assert spared(["1010", "010 m"], text) == f"{KEY[:-3]}{MASK}s"


@pytest.mark.parametrize("mark", ["…", "\\u2026", "&hellip;"])
@pytest.mark.parametrize("value", VALUES)
def test_what_a_cut_has_left_of_a_value_is_taken_out(value: str, mark: str) -> None:
    for left in range(4, len(value)):
        text = f"{mark} pay {value[:left]}{mark} (300 characters), {value[: left - 1]}"
        said = blotting(VALUES, text)(text)
        assert said.startswith(f"{mark} pay {MASK}{mark} (300 characters), "), said


def test_what_a_cut_has_left_is_found_as_json_and_html_have_it() -> None:
    value = 'Mara "Quo" Vance'
    for spelled in (json.dumps(value[:12])[1:], escape(value[:12]), escape(json.dumps(value[:12])[1:])):
        text = f"of {spelled.removesuffix('"').removesuffix('&quot;')}…"
        assert blotting([value], text)(text) == f"of {MASK}…"


def test_words_before_a_cut_that_begin_no_value_stay() -> None:
    for text in ("Vance…", "Mar…", "Mara Vance…", "Mara “Quo”", "…", "abc…"):
        assert blotting(['Mara "Quo" Vance'], text)(text) == text


def test_of_values_that_overlap_before_a_cut_no_part_stays() -> None:
    for values, text in (
        (["Mara Alexandra", "andrax"], "of Mara Alexandra…"),
        (["Alexandra", "Mara Alexandra Smith"], "of Mara Alexandra Smi…"),
    ):
        assert blotting(values, text)(text) == f"of {MASK}…"


def test_a_text_of_nothing_but_cuts_is_read_once() -> None:
    text = "aaaa…" * 50_000
    assert blotting(["a" * 300, "bbbb"], text)(text) == f"{MASK}…" * 50_000


@pytest.mark.parametrize(
    ("values", "text", "shown"),
    [
        (["a" * 50_000], "a" * 60 + "…", f"{MASK}…"),
        (["a" * 50_000], "b" + "aaaa…" * 20_000, "b" + f"{MASK}…" * 20_000),
        (["ab" * 20_000], "ab" * 15_000 + "…", f"{MASK}…"),
        ([f"aaaa{number}x" for number in range(5_000)], "aaaa…" * 5_000, f"{MASK}…" * 5_000),
    ],
)
def test_what_cuts_have_left_takes_no_more_than_there_is_to_read(values: list[str], text: str, shown: str) -> None:
    """One repeated letter has a beginning at each of its letters: copying all beginnings would fill the memory."""
    tracemalloc.start()
    try:
        assert blotting(values, text)(text) == shown
        assert tracemalloc.get_traced_memory()[1] < 1000 * (sum(map(len, values)) + len(text))
    finally:
        tracemalloc.stop()


@given(st.lists(st.text('aB"<\n\u00e9…', min_size=4, max_size=12), max_size=5), st.text('aB"<\n\u00e9…', max_size=60))
def test_a_cut_leaves_no_beginning_of_any_value(values: list[str], text: str) -> None:
    low = text.lower()
    for value in {each.strip().lower() for each in values}:
        for end in range(4, len(value)):
            if low.endswith(value[:end]):
                cut = f"{text}…"
                assert blotting(values, cut)(cut).endswith(f"{MASK}…")


def test_what_could_be_read_in_many_ways_is_read_in_one() -> None:
    """With spaces that may be pluses and repeated backslashes, a hostile pair would otherwise take for ever."""
    for value, text in ((" +" * 40 + " x1234", "+" * 4000), ('\\"' * 60 + "x1234", "\\" * 4000 + '\\\\\\\\"' * 100)):
        assert blotting([value], f"{text} x1234")(text) == text


@given(st.lists(st.text(min_size=4, max_size=30), max_size=8), st.text(max_size=200))
def test_no_value_stays_and_a_text_without_any_stays_whole(values: list[str], text: str) -> None:
    plain = [value for value in values if len(value.strip()) >= 4 and MASK[0] not in value]
    whole = " | ".join([text, *plain])
    shown = blotting(plain, whole)(whole)
    assert [value for value in plain if value.strip() in shown] == []
    assert blotting([], text)(text) == text
