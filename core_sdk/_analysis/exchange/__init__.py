"""Records of other trackers as trials, and trials for tools that speak SQL or Parquet (an annex).

A reader for each tool finds its runs and yields their rows; it knows nothing of homes. One writer makes trials of them.
"""
