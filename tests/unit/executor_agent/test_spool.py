"""The spool: each byte and row once, in order, and nothing that is not whole."""

from __future__ import annotations

import json
from pathlib import Path

from executor.agent.run_folder import Sent
from executor.agent.spool import Spool, as_text
from tests.unit.executor_agent.leases import a_folder


def row(rank: int, step: int) -> str:
    return json.dumps({"rank": rank, "step": step, "step_seconds": 0.5, "loss": 2.0}) + "\n"


def test_a_log_goes_out_from_where_the_server_has_it(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    folder.log_path.write_bytes(b"first\nsecond\n")
    spool = Spool(folder)
    spool.log_acknowledged(6)
    piece = Spool(folder).next_log(is_ended=False)
    assert piece is not None
    assert (piece.offset, piece.text, piece.end) == (6, "second\n", 13)


def test_a_character_that_is_cut_off_waits_for_its_rest(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    folder.log_path.write_bytes("aé".encode()[:2])
    piece = Spool(folder).next_log(is_ended=False)
    assert piece is not None
    assert piece.text == "a"
    folder.log_path.write_bytes("aé".encode())
    piece = Spool(folder).next_log(is_ended=False)
    assert piece is not None
    assert piece.text == "aé"


def test_at_the_end_half_a_character_is_sent_as_a_question_mark(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    folder.log_path.write_bytes(b"a\xc3")
    piece = Spool(folder).next_log(is_ended=True)
    assert piece is not None
    assert piece.text == "a?"


def test_text_has_as_many_bytes_as_the_file_whatever_stands_there() -> None:
    content = b"ok \xff\xfe\x80 \xe2\x82 \x00 \xf0\x9f\x98 end \xe2\x82\xac"
    text = as_text(content, is_final=True)
    assert len(text.encode()) == len(content)
    assert "\0" not in text
    assert text.endswith("end €")


def test_rows_are_numbered_on_and_lines_that_are_none_are_passed_over(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    folder.metrics_path.write_text(row(0, 1) + "no row\n" + row(1, 1) + '{"rank": 0, "step": 2, ')
    spool = Spool(folder)
    piece = spool.next_rows()
    assert piece is not None
    assert [(r.rank, r.step) for r in piece.rows] == [(0, 1), (1, 1)]
    spool.rows_acknowledged(piece, 2)
    assert spool.next_rows() is None
    with folder.metrics_path.open("a") as file:
        file.write('"step_seconds": 0.25}\n')
    piece = Spool(folder).next_rows()
    assert piece is not None
    assert (piece.sequence, piece.rows[0].step) == (2, 2)


def test_a_server_that_has_fewer_rows_gets_the_missing_ones_again(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    folder.metrics_path.write_text(row(0, 1) + "no row\n" + row(0, 2) + row(0, 3))
    spool = Spool(folder)
    piece = spool.next_rows()
    assert piece is not None
    spool.rows_acknowledged(piece, 1)
    again = spool.next_rows()
    assert again is not None
    assert (again.sequence, [r.step for r in again.rows]) == (1, [2, 3])


def test_what_was_acknowledged_survives_the_agent(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    folder.metrics_path.write_text(row(0, 1))
    spool = Spool(folder)
    piece = spool.next_rows()
    assert piece is not None
    spool.rows_acknowledged(piece, 1)
    size = len(row(0, 1))
    assert folder.read_sent() == Sent(log_bytes=0, metric_rows=1, metric_bytes=size)
    assert Spool(folder).is_empty()


def test_a_line_of_a_megabyte_does_not_hold_up_what_follows(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    folder.metrics_path.write_text("x" * 2**20 + "\n" + row(0, 7))
    spool = Spool(folder)
    found = []
    while (piece := spool.next_rows()) is not None:
        found += [r.step for r in piece.rows]
        spool.rows_acknowledged(piece, len(found))
    assert found == [7]
