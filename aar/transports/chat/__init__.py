"""`aar chat`: the assistant line by line, for dumb terminals, screen readers and those who like it plain."""
