"""How Sphinx builds the site; tools/build_site.py puts sources beside this file and starts it."""

project = "profkit"
author = "the authors of profkit"
extensions = ["myst_nb"]
html_theme = "furo"
html_title = "profkit"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # tools/build_site.py has run them, where they stand
# Blocks of commands have no language, and no lexer knows CUDA better than C++'s.
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]
exclude_patterns = ["README.md", "decisions/README.md"]


def setup(app: object) -> None:
    """CUDA is C++ to the lexer."""
    from pygments.lexers import CudaLexer

    app.add_lexer("cuda", CudaLexer)
