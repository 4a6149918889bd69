import pathlib
import sys

here = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(here.parent), str(here.parents[2] / "docs" / "examples")]

from fake_masterd import masterd  # noqa: E402,F401
