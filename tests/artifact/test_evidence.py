"""The line that a verdict rests on."""

from __future__ import annotations

from edgekit.artifact.result import Evidence, Verdict


def test_the_line_names_kinds_shapes_place_who_answered_and_what_was_not_asked() -> None:
    found = Evidence(
        inputs={"evaluation": 80, "photographs": 8, "grid": 51},
        shapes=43,
        between=27,
        repeated=81,
        place="ONNX Runtime 1.31, CPU, 2 threads",
        settings={"provider": "CPU"},
        answered_by={"NVIDIA H200": 139, "PyTorch": 60},
        not_asked=("answers of timed runs",),
    )
    assert str(found) == (
        "asked: 80 evaluation inputs, 8 photographs, 51 random inputs at shapes, 43 shapes (27 between those of the "
        "grid), 81 inputs twice in ONNX Runtime 1.31, CPU, 2 threads, provider CPU; against NVIDIA H200 (139 rows), "
        "PyTorch (60 rows); not asked: answers of timed runs"
    )


def test_a_model_without_an_evaluation_set_does_not_read_like_one_with_it() -> None:
    without, with_one = Evidence(inputs={"stress": 9}), Evidence(inputs={"evaluation": 1, "stress": 9})
    assert str(without).startswith("asked: no evaluation set, 9 random")
    assert "no evaluation set" not in str(with_one)
    for status, evidence, beside in (
        ("verified", without, "no evaluation set"),
        ("verified", with_one, ""),
        ("rejected", without, ""),
        ("verified", None, ""),
    ):
        assert Verdict.model_validate({"place": "cpu", "status": status, "evidence": evidence}).qualifier == beside
