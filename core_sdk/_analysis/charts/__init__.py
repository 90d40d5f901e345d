"""Charts of curves as values, and as pictures in SVG, HTML and PNG that need nothing else to be seen."""
