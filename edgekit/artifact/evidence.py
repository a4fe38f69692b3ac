"""What a verdict rests on: how many inputs of which kinds, which shapes, where, and what was not asked."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from edgekit.artifact.fact import EVALUATION

NO_EVALUATION_SET = "no evaluation set"
_KINDS = {
    EVALUATION: "evaluation inputs",
    "photographs": "photographs",
    "changed": "changed inputs (dark, bright, grey, at their ends)",
    "levelled": "inputs of another mean brightness",
    "stress": "random and extreme inputs",
    "grid": "random inputs at shapes",
    "real": "real inputs at shapes",
    "between": "inputs at shapes between those of the grid",
}


class Evidence(BaseModel):
    """What was asked of an artifact in one place.

    Attributes:
        inputs: Rows that were compared, by kind of batch.
        shapes: Shapes that were asked.
        between: How many of them are not of the grid.
        repeated: Rows that were asked twice, in another order.
        place: What ran it: runtime, version, device, threads, in words.
        settings: Of the place, by name.
        answered_by: Rows of the reference by who answered.
        not_asked: What was left out, a few words each.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    inputs: dict[str, int] = {}
    shapes: int = 0
    between: int = 0
    repeated: int = 0
    place: str = ""
    settings: dict[str, str] = {}
    answered_by: dict[str, int] = {}
    not_asked: tuple[str, ...] = ()

    @property
    def qualifier(self) -> str:
        """What must stand beside the word verified; empty where the model has an evaluation set."""
        return "" if self.inputs.get(EVALUATION) else NO_EVALUATION_SET

    def __str__(self) -> str:
        parts = [NO_EVALUATION_SET] if self.qualifier else []
        parts += [f"{count} {_KINDS.get(kind, kind)}" for kind, count in self.inputs.items() if count]
        parts += [f"{self.shapes} shapes ({self.between} between those of the grid)"] if self.shapes else []
        parts += [f"{self.repeated} inputs twice"] if self.repeated else []
        settings = "".join(f", {name} {value}" for name, value in sorted(self.settings.items()))
        where = f" in {self.place}{settings}" if self.place else ""
        answers = ", ".join(f"{by} ({count} rows)" for by, count in self.answered_by.items())
        against = f"; against {answers}" if answers else ""
        left_out = f"; not asked: {', '.join(self.not_asked)}" if self.not_asked else ""
        return f"asked: {', '.join(parts) or 'nothing'}{where}{against}{left_out}"
