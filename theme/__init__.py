"""How a recipe looks: page bodies, charts, the MkDocs adapter, templates, styles and scripts."""
