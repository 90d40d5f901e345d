"""The web page of a home, and the HTTP interface behind it.

`page/` holds the files that a browser gets. `routes/` answers its questions, from a `View` or else from the files of
the home; a route that changes records is a verb of `steering`. No question is answered without the token. Nothing of a
request is ever a path of the file system, and nothing of a run is HTML.
"""
