"""Screens over the main one: lists to choose from, views to look through, questions before the start."""

NOT_SET = "not set"
"""Stands in the list of settings for one without a value."""
