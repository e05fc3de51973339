"""The Agent Client Protocol over standard streams: the door for editors."""
