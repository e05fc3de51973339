"""Help for small models: what they are shown, and what their files are checked for before they count."""
