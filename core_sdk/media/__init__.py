"""Images, audio, videos and other media as values of a report.

    from core_sdk import media

    core_context.train.report_metrics("validation", steps, {"samples": [media.Image(one) for one in batch[:4]]})

A value is encoded when it is made, so that what becomes of the tensor later does not change it. It needs the extra
`media`, and each library is loaded only by the kind that needs it.
"""

from core_sdk._ground.records import MediaFile
from core_sdk.media._audio import Audio
from core_sdk.media._confusion_matrix import ConfusionMatrix
from core_sdk.media._figure import Figure
from core_sdk.media._histogram import Histogram
from core_sdk.media._image import Image
from core_sdk.media._table import Table
from core_sdk.media._text import Text
from core_sdk.media._video import Video

__all__ = [
    "Audio",
    "ConfusionMatrix",
    "Figure",
    "Histogram",
    "Image",
    "MediaFile",
    "Table",
    "Text",
    "Video",
]
