"""Pickling of functions of a script or a notebook, which no module can be asked for, and what refuses to be pickled."""

from __future__ import annotations

import io
from types import CodeType
from typing import Any, NoReturn


class OfOneProcess:
    """Refuses to be pickled and copied, since it holds locks, files and connections of its process."""

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled or copied: it belongs to the process whose script has made it. "
            "Give other processes (workers of a DataLoader or a Pool, functions to be called elsewhere) the values "
            "that they need, such as `core_context.info`, and let them return what is to be reported or stored here"
        )


def dumps_by_value(value: object) -> bytes:
    """Pickles `value` with cloudpickle, and keeps the name of the file that each function stands in.

    cloudpickle 3.1.3 and later write `<dynamic-code>` in its place. Then a traceback in another process shows no
    line of the source, and `inspect.getsource()`, which `torch.compile` and `torch.jit.script` call, finds none.
    """
    import cloudpickle  # slow to import, and needed by few programs

    reduce_code = cloudpickle.CloudPickler.dispatch_table[CodeType]

    def reduce_code_with_file(code: CodeType) -> tuple[Any, ...]:
        _, args = reduce_code(code)
        return _code, (code.co_filename, args)

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # cloudpickle has no types
        dispatch_table = cloudpickle.CloudPickler.dispatch_table.new_child({CodeType: reduce_code_with_file})

    file = io.BytesIO()
    Pickler(file).dump(value)
    return file.getvalue()


def _code(file_name: str, args: tuple[Any, ...]) -> CodeType:
    return CodeType(*args).replace(co_filename=file_name)
