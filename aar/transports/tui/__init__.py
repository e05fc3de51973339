"""The full screen: a presenter folds events into view state, widgets draw it."""
