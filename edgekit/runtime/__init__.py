"""Runtimes that run artifacts in their own environment; each implements `edgekit.target.Runtime`, imported lazily."""
