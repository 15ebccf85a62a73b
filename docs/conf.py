"""The documentation, built by `make docs`. Neither building nor reading it fetches anything."""

import sys
from pathlib import Path

import s3vm

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "s3vm"
project_copyright = "the s3vm developers"
version = release = s3vm.__version__

extensions = [
    "gallery",
    "mathml",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "**/sg_execution_times.rst", "sg_execution_times.rst"]
templates_path = ["_templates"]
default_role = "autolink"
highlight_language = "none"  # code blocks name their language; a plain block is output

myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 3

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = "s3vm"
html_static_path = ["_static"]
html_css_files = ["s3vm.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "s3vm"},
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
}
html_sidebars = {page: [] for page in ("index", "quickstart", "guide")}  # pages without subpages

autosummary_generate = True
autodoc_typehints = "none"  # they are in the docstrings
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "within_subsection_order": "ExampleTitleSortKey",
    "download_all_examples": False,
    "capture_repr": (),  # only printed output
    "show_signature": False,
    "show_memory": False,
    "remove_config_comments": True,
    "matplotlib_animations": False,
    "abort_on_example_error": True,
}
