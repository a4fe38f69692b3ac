"""Script for the interpreter of the environment `litert`, without edgekit. It runs the `answer` of a file once.

Arguments: the file, a JSON object as the argument of `answer`, and the path of the JSON object to write. That object
holds "answer", the returned value, or "error", the first line of the error.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path


def main() -> None:
    """Run the file and write the result."""
    file, request, response = sys.argv[1:]
    try:
        ended = {"answer": runpy.run_path(file)["answer"](json.loads(request))}
    # Whatever its library met: the parent says it in a sentence.
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        ended = {"error": lines[0] if lines else type(error).__name__}
    Path(response).write_text(json.dumps(ended))


if __name__ == "__main__":
    main()
