"""Real rows varied a little: pictures of a longer exposure, and numbers just beyond those of the data."""

from __future__ import annotations

import numpy as np
import torch

from edgekit.model.spec import Input, ModelSpec, Output
from edgekit.reference.variations import EXPOSED, exposed_rows, rows_beyond


def classifier(role: str = "logits") -> ModelSpec:
    images = Input("images", ("batch", 3, 4, 4), low=-1.0, high=1.0, kind="image")
    output = Output("y", role=role)  # type: ignore[arg-type]  # one of the roles
    return ModelSpec("net", torch.nn.Identity(), (images,), (output,))


def test_a_classifier_of_pictures_is_asked_pictures_from_all_over_the_set_with_clipped_values() -> None:
    draw = np.random.default_rng(0)
    rows = {f"picture {n}": {"images": draw.uniform(-1, 1, (1, 3, 4, 4)).astype(np.float32)} for n in range(120)}
    exposed = exposed_rows(classifier(), rows)
    assert len(exposed) == EXPOSED
    assert len({name.partition(",")[0] for name in exposed}) == EXPOSED
    assert int([*exposed][-1].partition(",")[0].split()[1]) > 110
    picture = exposed["picture 3, exposed 1.5 times"]["images"]
    assert np.allclose(picture, np.minimum(1.5 * (rows["picture 3"]["images"] + 1) - 1, 1), atol=1e-6)
    assert picture.max() == 1.0
    assert not exposed_rows(classifier("embedding"), rows)


def test_each_number_of_a_row_is_asked_alone_just_beyond_the_data_and_within_its_range() -> None:
    values = np.random.default_rng(0).uniform(-1, 1, (20, 5)).astype(np.float32)
    values[:, 4] = np.linspace(-10, 10, 20)  # its ends are those of the range
    spec = ModelSpec("net", torch.nn.Identity(), (Input("x", ("batch", 5), low=-10, high=10),), (Output("y"),))
    rows = rows_beyond(spec, {f"row {n}": {"x": values[n : n + 1]} for n in range(20)})
    for column in range(4):
        alone = [row["x"][0] for name, row in rows.items() if f"in value {column} " in name]
        reached = sorted(float(row[column]) for row in alone)
        low, high = values[:, column].min(), values[:, column].max()
        assert np.allclose(reached, [low - 0.1 * (high - low), high + 0.1 * (high - low)], atol=1e-5)
        assert all(np.delete(row, column).tolist() in np.delete(values, column, 1).tolist() for row in alone)
    assert not [name for name in rows if "in value 4 " in name]
    stretched = [row["x"] for name, row in rows.items() if "times as far" in name]
    assert len(stretched) == 8
    assert max(np.abs(row).max() for row in stretched) <= 10
