"""INT8 that is measured: calibration, ranges, recipes, sensitivity, search, and the graphs that come of them.

    samples -> ranges -> static(recipe) -> quality against fp32 -> search -> what passes with the least float work

Where things are: `calibration.py` what is shown to the model; `ranges.py` what its activations do; `recipe.py` one way
of quantizing; `groups.py` the parts of a model that are quantized or left in float together; `static.py` and
`dynamic.py` make graphs; `smooth.py` moves outliers from activations to weights; `stored.py` shrinks what stays in
float; `quality.py` judges a graph on samples; `saturation.py` is what processors without VNNI do, `spread.py` how
much that matters; `search.py` finds the recipe; `tried.py` keeps what was found.
"""
