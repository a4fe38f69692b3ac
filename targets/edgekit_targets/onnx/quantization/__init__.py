"""INT8 that is measured: calibration, conditioning, ranges, recipes, sensitivity, and the search for the best recipe.

    samples -> conditioned graph -> ranges -> quality of each recipe against fp32 -> the least float work that passes

Where things are: `calibration.py` what is shown to the model, and the ranges of its activations; `conditioning.py` what
makes a graph lose less, whichever way it is quantized; `evaluator.py` judges a graph on samples; `search.py` finds the
recipe and keeps what was tried. The graphs themselves are made in `targets/edgekit_targets/onnx/passes/`.
"""
