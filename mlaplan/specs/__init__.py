"""Chip and model specs: YAML or config.json text to typed, validated data."""
