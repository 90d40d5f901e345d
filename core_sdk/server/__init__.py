"""The web page of a home, and the HTTP interface behind it.

`page/` holds the files that a browser gets; `routes/` answers its questions, all over the `Tracker` seam. Only what has
the token is answered. Nothing of a request is ever a path of the file system, and nothing of a run is ever HTML.
"""
