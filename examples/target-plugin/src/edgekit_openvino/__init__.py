"""A target of edgekit in a package of its own: OpenVINO's intermediate representation."""
