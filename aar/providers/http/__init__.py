"""What every wire over HTTP shares: client, errors, events, hints to wait, refused parameters."""
