"""The ground floor: the words that every part of aar speaks. Imports nothing of aar."""
