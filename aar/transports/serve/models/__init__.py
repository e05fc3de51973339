"""aar as a model: what chat clients speak, answered by an agent that works in the project."""
