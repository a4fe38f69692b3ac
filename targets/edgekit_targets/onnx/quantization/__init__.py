"""INT8 that is measured: calibration, conditioning, ranges, recipes, sensitivity, and the search for the best recipe.

    samples -> conditioned graph -> ranges -> quality of each recipe against fp32 -> the least float work that passes

Modules: `calibration.py` has the samples, and the ranges of activations; `conditioning.py` reduces a graph's loss,
however it is quantized; `evaluator.py` judges a graph on samples; `search.py` finds the recipe and records the trials.
The passes that make the graphs are in `targets/edgekit_targets/onnx/passes/`.
"""
