"""Settings of the site; ``pages.py`` writes the sources that Sphinx reads."""

project = "Keel"
author = "The Keel authors"
copyright = "2026 The Keel authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
root_doc = "index"

myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # a snippet may be a part of a program

autodoc_default_options = {"member-order": "bysource"}
autodoc_typehints = "description"  # a signature with a default factory cannot be parsed
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_use_type_comments = False
python_maximum_signature_line_length = 90
add_module_names = False
default_role = None

html_theme = "furo"
html_title = "Keel"
html_baseurl = "https://torch-keel.github.io/torch-keel/"
html_extra_path = ["../../build/extra"]
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "source_repository": "https://github.com/torch-keel/torch-keel/",
    "light_css_variables": {"color-brand-primary": "#2f3f94", "color-brand-content": "#2f3f94"},
    "dark_css_variables": {"color-brand-primary": "#a9b8ff", "color-brand-content": "#a9b8ff"},
    "top_of_page_buttons": [],
}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


def setup(app):
    app.connect("html-page-context", for_keyboards_and_readers, priority=900)


def for_keyboards_and_readers(app, page, template, context, doctree):
    """Captions of the sidebar are headings without a level, and code that scrolls cannot be reached by keys."""
    tree, body = context.get("furo_navigation_tree", ""), context.get("body", "")
    context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')
    context["body"] = body.replace("<pre>", '<pre tabindex="0">')
