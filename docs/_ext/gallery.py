"""Turns links to example scripts, which work on a code host, into links to the pages of the gallery."""

import re


def setup(app):
    app.connect("source-read", _link_to_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _link_to_pages(app, docname, source):
    text = re.sub(r"\]\(\.\./examples/(\w+\.py)\)", r"](#sphx_glr_auto_examples_\1)", source[0])
    source[0] = text.replace("](../examples)", "](#gallery)")
