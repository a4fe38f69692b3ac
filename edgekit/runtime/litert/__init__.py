"""LiteRT: a `.tflite` file, answered in the environment `litert`."""
