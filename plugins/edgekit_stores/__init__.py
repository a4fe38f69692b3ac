"""Builds in object stores: push, pull, list."""
