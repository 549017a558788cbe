"""Provide small helpers for files, threads, progress and checks."""
