"""Checks of deployments: launch commands in scripts, manifests and configs, against what engines do and what fits.

    text -> documents -> commands (words with positions) -> deployment -> rules -> findings -> output

Every stage is plain data for the next. Nothing that is read is ever run or expanded beyond literal assignments.
"""
