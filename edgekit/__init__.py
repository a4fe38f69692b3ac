"""edgekit: a trained model -> everything the edge runs, each artifact proved against a recorded reference."""
