"""Screens over the main one: lists to choose from, views to look through, questions before the start."""
