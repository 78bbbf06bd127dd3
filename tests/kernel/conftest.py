"""Hypothesis without a deadline: a busy machine is not a failing test."""

from hypothesis import settings

settings.register_profile("kernel", deadline=None)
settings.load_profile("kernel")
