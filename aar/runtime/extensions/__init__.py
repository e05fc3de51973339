"""Python extensions of a runtime: found and loaded beside everything else, then let into its sessions."""
