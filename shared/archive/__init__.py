"""Kinds of rows that can be archived, and reading them from their source a page at a time."""
