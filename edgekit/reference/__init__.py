"""Reference of a model: its inputs, its outputs, and the device that recorded them."""
