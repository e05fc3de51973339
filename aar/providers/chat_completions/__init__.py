"""The wire of chat completions; the other wires share its reading of streams and calls."""
