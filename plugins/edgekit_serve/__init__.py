"""An inference server for verified artifacts: Open Inference Protocol v2, and a route for pictures and words."""
