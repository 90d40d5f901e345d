"""Writers: programs that report about a trial next to its own program, such as an evaluator of its checkpoints."""

from core_sdk.core._writer._opening import init_writer, open_writer
