"""Formulae as MathML, which browsers render themselves: a page needs neither scripts nor a network.

docutils converts TeX to MathML, but Sphinx has no renderer that uses it.
"""

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

_log = logging.getLogger(__name__)


def setup(app):
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(translator, node):
    translator.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def _display(translator, node):
    translator.body += [translator.starttag(node, "div", CLASS="math"), _mathml(node, as_block=True), "</div>\n"]
    raise nodes.SkipNode


def _mathml(node, as_block):
    try:
        return tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        _log.warning("%s: %s", node.astext(), error, location=node)
        return ""
