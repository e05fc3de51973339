"""``aar serve``: sessions over HTTP, a page to watch them, and aar as a model for chat clients."""
