"""A recommendation as one page to hand on: the same content as HTML and as Markdown.

`content` puts the sections together, each made by the file of its topic out of `elements`; `html` and `markdown`
write them. Nothing is computed here that `recommend` and `explain` do not compute.
"""
