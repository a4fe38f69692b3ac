"""Rewrites of a captured graph until XNNPACK takes it in few subgraphs: one pass, one file, one test."""
