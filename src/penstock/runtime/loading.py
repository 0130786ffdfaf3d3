"""The app in a file, which is run as a module; what fails of it is shown as the user's own."""

import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle

from penstock.errors import AppError, InvalidInput, PenstockError
from penstock.runtime.app import App
from penstock.runtime.graph import unknown
from penstock.streams.spark.users_code import NOT_THEIRS, users_frames

_PREFIX = "penstock_app_"

_loading: ContextVar[bool] = ContextVar("penstock_loading", default=False)


def load_app(path: Path, name: str | None = None) -> App:
    """The app that the file makes; with `name` the one called so, where there are several.

    Modules beside the file can be imported by it, here and in Spark's workers. Raises AppError,
    with the lines of the user's code, when the file cannot be run.
    """
    module = f"{_PREFIX}{path.stem}"
    spec = importlib.util.spec_from_file_location(module, path)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{path} is not a Python file", hint="penstock run app.py")
    found = importlib.util.module_from_spec(spec)
    folder = str(path.parent.absolute())
    if folder not in sys.path[:1]:
        sys.path.insert(0, folder)
    beside = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    if folder not in beside[:1]:
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *beside])
    sys.modules[module] = found
    # Workers cannot import it by the name it has here, so its functions travel whole.
    cloudpickle.register_pickle_by_value(found)  # type: ignore[no-untyped-call]
    with users_errors(f"{path} cannot be run"), _is_loading():
        # Not by its loader, which may take the bytecode of a file that has changed since, if only
        # within the same second.
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), vars(found))
    apps = {each.name: each for each in vars(found).values() if isinstance(each, App)}
    if not apps:
        raise AppError(
            f"{path} makes no app", hint='app = ps.App("shop"), at the left edge of the file'
        )
    if name is None and len(apps) > 1:
        raise AppError(
            f"{path} makes {len(apps)} apps", hint=f"choose: --app {' or --app '.join(apps)}"
        )
    if name is not None and name not in apps:
        raise unknown(name, apps, "--app asks for", whose=str(path))
    return apps[name] if name else next(iter(apps.values()))


def load_again(path: Path, name: str) -> App:
    """The app as its file, and the modules beside the file, make it now. What was loaded before
    goes on with the code that it had. Raises as `load_app` does, and has changed nothing then."""
    before = _modules_beside(path)
    for each, module in before.items():
        del sys.modules[each]
        if module.__file__ and module.__file__.endswith(".py"):
            Path(importlib.util.cache_from_source(module.__file__)).unlink(missing_ok=True)
    importlib.invalidate_caches()
    try:
        app = load_app(path, name)
    except BaseException:
        for each in _modules_beside(path):
            del sys.modules[each]
        sys.modules.update(before)
        raise
    for module in _modules_beside(path).values():
        # Workers have the old ones, and would not import them again.
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return app


def _modules_beside(path: Path) -> dict[str, ModuleType]:
    """The user's own modules, by name: those that lie in the folder of the app's file."""
    folder = f"{path.parent.absolute()}{os.sep}"
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if name != "__main__" and file.startswith(folder) and not file.startswith(NOT_THEIRS):
            found[name] = module
    return found


def refuse_while_loading() -> None:
    if _loading.get():
        raise InvalidInput(
            "the app is started while its file is still being loaded",
            hint='put app.run() under `if __name__ == "__main__":`',
        )


@contextmanager
def _is_loading() -> Iterator[None]:
    token = _loading.set(True)
    try:
        yield
    finally:
        _loading.reset(token)


@contextmanager
def users_errors(what: str) -> Iterator[None]:
    """Raises AppError for what the user's code raised, with the lines of that code alone.

    Errors of penstock in which no line of the user's is involved pass as they are.
    """
    try:
        yield
    except Exception as error:
        lines = users_lines(error)
        if isinstance(error, PenstockError) and not lines:
            raise
        if isinstance(error, PenstockError):
            said, hint = f"{type(error).__name__}: {error.message}", error.hint
        else:
            said, hint = "".join(traceback.format_exception_only(error)).rstrip(), ""
        raise AppError("\n".join([what, *lines, said]), hint=hint) from error


def users_lines(error: BaseException) -> list[str]:
    """The places in the user's code that the error came through, with the code there."""
    frames = traceback.format_list(users_frames(error))
    return [line for text in frames for line in text.rstrip().splitlines()]
