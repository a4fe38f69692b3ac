"""LiteRT models, once TensorFlow Lite."""
