"""Runtimes: what runs an artifact where it lives. Each implements `edgekit.target.Runtime` and imports lazily."""
